"""The joints that tests must hold: constants and hand-overs, each with a way to break it and the tests that must notice.

A mutant is (file under src/noshadow, text that stands there once, what replaces it, tests in tests/test_wiring.py or file::test).
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One joint, broken: `before` stands once in `file` and becomes `after`; one of `tests` must fail."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def name(self):
        """File, what stands there and what replaces it, one line each."""
        old, new = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}: {old} → {new or 'nothing'}"


SEQUENCE_SOURCES = "tests/test_language_references.py::test_checkpoints_and_out_of_fold_losses_are_columns_and_weighed"
COPIES = "tests/test_near_sequences.py::test_an_audit_counts_copies_and_says_so"
SEQUENCE_RMIA = "tests/test_language_references.py::test_rmia_of_sequences_compares_mean_likelihoods"
OWN_GAIN = "tests/test_own_gain.py::test_the_column_is_in_the_audit_and_is_its_answer"
OWN_ABSENT = "tests/test_own_gain.py::test_what_has_nothing_between_it_and_its_base_says_so"
SHARDED = "tests/test_language_base.py::test_files_that_are_not_what_their_index_says_are_refused"
BASE_RANKS = "tests/test_language_base.py::test_the_gain_over_the_base_ranks_nothing"
VOTED = "tests/test_reference_votes.py::test_margins_are_votes_of_the_targets_trees"
VOTES_TOLD = "tests/test_reference_votes.py::test_sets_of_votes_and_others_say_that_they_are_log_odds"
FLAT_VOTES = "tests/test_reference_votes.py::test_forests_without_any_spread_are_attacked"
VOTED_ONCE = "tests/test_reference_votes.py::test_exposure_beside_references_is_weighed_on_one_scale"
UNTOLD = "tests/test_reference_votes.py::test_files_that_do_not_tell_are_read_as_they_say_or_as_the_audit_does"
WALKED = "tests/test_yielding_splits.py::test_steps_are_those_of_a_walk_down_the_tree"
YIELDS = "tests/test_yielding_splits.py::test_boosted_classifiers_are_ranked_by_it"
OF_BOTH = "tests/test_yielding_splits.py::test_the_column_is_made_of_both_answers"
KNOWS_NOTHING = "tests/test_audit_exposure.py::test_a_base_that_knows_nothing_of_the_records_is_left_out"
COMPLEMENT_PAIRS = "tests/test_exposure.py::test_pairs_of_complements_give_no_sizes_and_random_halves_do"
HEAD = "test_what_describes_the_head_reaches_its_scores"
RISK = "test_seed_level_groups_and_classes_reach_the_risk"
DECAY = "test_weight_decay_becomes_damping_on_the_sum"
RANKED = "test_an_audit_holds_every_score_and_ranks_by_the_largest_shift"
ALIKE = "test_records_look_alike_to_four_digits_of_the_spread"
LAYERS = "test_scores_over_layers_get_the_audits_own_options"
ESTIMATOR = "test_a_scikit_learn_head_hands_over_its_penalty_weights_bias_and_names"
BIAS = "test_a_module_without_a_bias_is_scored_without_one"
NOISE = "test_a_regressions_record_rates_are_read_at_the_models_level_with_its_noise"
AUTO = "test_automatic_damping_is_a_millionth_of_the_mean_curvature"
PREDICTORS = "test_predictors_by_name_and_level"
TWENTIETH = "test_rounding_is_judged_on_the_riskiest_twentieth"
REDONE = "test_float32_is_redone_when_either_error_exceeds_a_ten_thousandth"
BEYOND = "test_a_tenth_beyond_the_setups_is_still_like_them"
APART = "test_losses_must_tell_members_apart_in_their_middle_or_their_tail"
ASKED = "test_the_prediction_is_for_the_attack_asked_for"
LEVELS = "test_levels_of_the_risk"
GROUPS = "test_a_group_is_judged_from_twenty_records_at_a_level_that_ten_members_resolve"
FEW = "test_a_threshold_that_rests_on_four_members_is_said_everywhere"
HUNDRED = "test_shares_of_the_riskiest_are_taken_from_a_hundred_records"
COMPARED = "test_a_comparison_looks_at_the_top_hundredth_and_at_one_target_in_a_hundred"
COMPARISON = "test_a_comparison_is_drawn_at_the_level_and_seed_asked_for"
COMMAND = "test_the_command_hands_its_options_over"
EVERY = "test_every_score_is_compared_with_every_attack"
DRAWN = "test_the_seed_of_the_attacks_draws_the_intervals"
OPTIONS = "test_options_of_the_attacks_reach_them"
BY_LOSS = "tests/test_ground_truth.py::test_a_regression_is_attacked_by_its_loss_where_that_is_asked_for"
SIZE = "test_few_models_few_records_and_the_levels_they_resolve"
PARITY = "test_a_target_is_unlike_its_references_beyond_four_deviations_of_a_hundredth"
WITHIN = "test_a_target_within_the_range_of_its_references_is_like_them"
WEIGHED = "tests/test_audit_exposure.py::test_the_columns_are_those_of_the_exposure"
OWN_LEVEL = "tests/test_audit_exposure.py::test_the_rate_is_that_of_the_audits_own_level"
SCALED = "tests/test_audit_exposure.py::test_a_source_without_a_scale_takes_no_sizes_away"
NO_SIZES = "tests/test_exposure_sources.py::test_one_reference_beside_folds_gives_the_order_only"
ASIDE = "tests/test_exposure_sources.py::test_a_base_is_an_observation_only_where_nothing_else_has_margins"
UNTRAINED = "test_a_base_beside_references_sets_no_spread"
WITHHELD = "test_sizes_that_contradict_themselves_are_withheld"
HEEDLESS = "test_models_that_do_not_heed_their_rows_give_no_sizes"
UNTESTED = "test_missing_test_records_are_what_is_asked_for"
LEFT_OUT = "tests/test_exposure.py::test_few_records_left_out_are_told_and_fewer_are_refused"
TWENTY = "tests/test_exposure.py::test_chance_among_twenty_records_is_no_contradiction"
EARLIER = "tests/test_audit_other_models.py::test_the_columns_of_a_checkpoint_are_those_of_its_own_audit"
ORIGIN = "tests/test_audit_other_models.py::test_the_base_is_a_model_without_the_records"
SOURCES = "tests/test_cli_sources.py::test_sources_reach_the_audit_of_a_function"
TRAINED = "tests/test_trained_sources.py"
FOUR = "tests/test_four_references.py"
BY_FOUR = f"{FOUR}::test_an_audit_predicts_from_four_and_says_so"
IN_FOURS = f"{FOUR}::test_larger_sets_attack_in_disjoint_fours"
OTHERWISE = f"{FOUR}::test_where_the_calibration_does_not_hold_the_audit_says_why"
BEST_EPOCH = "test_an_audit_stops_short_references_at_the_best_epoch_of_its_traces"
SHARED = "tests/test_findings.py::test_limits_agree_with_those_that_functions_warn_by"
DOCS = "tests/test_findings.py::test_codes_and_docs_name_each_other"
TRACED = "tests/test_early_loss.py::test_it_is_the_mean_of_the_losses_by_hand_up_to_the_lowest_mean_of_unseen_ones"
TRACED_IDS = "tests/test_early_loss.py::test_records_are_matched_by_id"
KEPT = "tests/test_loss_traces_unseen.py::test_the_kept_checkpoint_is_the_state_of_the_best_recording"
RESUMED = "tests/test_loss_traces_unseen.py::test_a_resumed_training_replaces_the_checkpoint_by_a_lower_loss_only"
LIMIT = "tests/test_findings.py::test_a_figure_at_its_limit_passes"
TOGETHER = "tests/test_reviewed.py::test_an_audit_draws_both_at_its_own_level_and_its_folder_keeps_them"
SPOKEN = "tests/test_reviewed.py::test_verdict_gate_terminal_and_page_speak_of_the_largest_rate"
RIGHT = "tests/test_reviewed.py::test_accusations_follow_what_is_best_known"
TWINS = "tests/test_near_twins.py"

EVIDENCE, SETTLED, ENTRY, RISKS = "_audit/evidence.py", "_audit/settled.py", "_audit/entry.py", "_audit/risks.py"
ARRAYS = "_audit/arrays.py"
COLUMNS = "columns.py"
TRUTH, ROWS = "reference/ground_truth.py", "reference/attack_list.py"
OF_MODEL, OF_RECORDS, LIMITS = "_findings/model_checks.py", "_findings/record_checks.py", "limits.py"
TAIL, PREDICTION = "tail/risk.py", "tail/prediction.py"

MUTANTS = tuple(
    Mutant(file, before, after, (test,) if isinstance(test, str) else test)
    for file, before, after, test in (
        # From the view to the scores
        (COLUMNS, "ranks=5", "ranks=9", RANKED),
        (COLUMNS, "ranks=1", "ranks=9", "tests/test_audit_without.py::test_bags_are_weighed_with_other_sources"),
        (EVIDENCE, 'named(source="scores", score=True)', 'named(source="scores", predicts=True)', RANKED),
        ("results/audit_record.py", "places[np.argsort(-score,", "places[np.argsort(score,", RANKED),
        (EVIDENCE, 'known = options.damping == "auto" and isinstance', "known = isinstance", DECAY),
        (EVIDENCE, "damping=seen.penalty if known else options.damping", "damping=options.damping", DECAY),
        (EVIDENCE, "        fit_intercept=seen.fit_intercept,\n", "", HEAD),
        (EVIDENCE, "        penalize_intercept=seen.penalize_intercept,\n", "", HEAD),
        (EVIDENCE, "        sample_weight=seen.sample_weight,\n", "", HEAD),
        (ARRAYS, "            fit_intercept=fit_intercept,\n", "            fit_intercept=True,\n", HEAD),
        (ARRAYS, "            penalize_intercept=penalize_intercept,\n", "            penalize_intercept=True,\n", HEAD),
        (ENTRY, '{"layers": layers, "damping"', '{"damping"', LAYERS),
        (ENTRY, '"damping": damping, "sample_weight"', '"sample_weight"', LAYERS),
        (ENTRY, '        "weight_decay": weight_decay,\n        "layer"', '        "layer"', LAYERS),
        (ENTRY, ', "sample_weight": seen.sample_weight}', "}", LAYERS),
        ("weight_decay.py", "(outputs / 2 if regression", "(1 / 2 if regression", DECAY),
        ("views/torch.py", "fit_intercept=head.layer.bias is not None", "fit_intercept=True", BIAS),
        ("views/torch.py", "penalize_intercept=True", "penalize_intercept=False", BIAS),
        ("views/estimators.py", 'bool(getattr(fitted.last, "fit_intercept", True))', "True", ESTIMATOR),
        ("views/estimators.py", "None if class_weight is None else compute_sample_weight(class_weight, y)", "None", ESTIMATOR),
        ("views/estimators.py", "penalize_intercept=penalty.penalize_intercept", "penalize_intercept=True", ESTIMATOR),
        (
            "views/estimator_tables.py",
            "LEAST_PROBABILITY = 1e-15",
            "LEAST_PROBABILITY = 1e-12",
            "test_a_certain_tree_is_wrong_by_the_least_probability",
        ),
        (
            SETTLED,
            "classes=class_names(targets, unseen, seen.class_names, task)",
            "classes=class_names(targets, unseen, None, task)",
            ESTIMATOR,
        ),
        (
            "_audit/references.py",
            "training_damping(decay, task, len(rows),",
            "training_damping(decay, task, len(seen.train),",
            "test_a_reference_model_is_damped_by_its_own_number_of_records",
        ),
        # From the audit to the model's risk
        ("_audit/options.py", '{"fpr": self.fpr, "seed": self.seed}', '{"fpr": self.fpr}', RISK),
        ("_audit/options.py", '{"fpr": self.fpr, "seed": self.seed}', '{"seed": self.seed}', RISK),
        (
            SETTLED,
            'group_names(given.test_groups, len(seen.test), "test_groups").get("group")',
            '(identity.get("group") or [])[: len(seen.test)]',
            RISK,
        ),
        (RISKS, "member_correct=None if correct is None else correct[0]", "member_correct=None if correct is None else ~correct[0]", RISK),
        (RISKS, "group_risk(*losses, own, other, **how)", "group_risk(*losses, own, other)", RISK),
        (EVIDENCE, "level = options.fpr if risk is None else risk.fpr", "level = options.fpr", NOISE),
        (EVIDENCE, "/ (spare * q),", "/ spare,", NOISE),
        (EVIDENCE, "dof=scores.effective_dof,\n            outputs=q,", "dof=scores.effective_dof,", NOISE),
        ("_audit/splits.py", "1e4", "1e3", ALIKE),
        ("_audit/splits.py", "1e4", "1e5", ALIKE),
        # Inside the scores
        ("scores/last_layer/damping.py", "RELATIVE_DAMPING = 1e-6", "RELATIVE_DAMPING = 1e-5", AUTO),
        (
            "scores/last_layer/damping.py",
            'width * (outputs - 1 if task == "classification" else 1)',
            'width * (outputs if task == "classification" else 1)',
            AUTO,
        ),
        (
            "scores/network/solver.py",
            "RELATIVE_DAMPING = 1e-6",
            "RELATIVE_DAMPING = 1e-5",
            "test_automatic_damping_over_layers_is_a_millionth_of_the_mean_curvature",
        ),
        ("scores/last_layer/precision.py", "np.quantile(shift, 0.95)", "np.quantile(shift, 0.9)", TWENTIETH),
        ("scores/last_layer/precision.py", "np.quantile(shift, 0.95)", "np.quantile(shift, 0.97)", TWENTIETH),
        (
            "scores/last_layer/precision.py",
            "probe_records(columns: dict[str, Array], *, each: int = 5",
            "probe_records(columns: dict[str, Array], *, each: int = 4",
            TWENTIETH,
        ),
        (LIMITS, "ROUNDING_TOLERANCE = 1e-4", "ROUNDING_TOLERANCE = 1e-3", REDONE),
        (
            "scores/last_layer/softmax_solver.py",
            'max(shift_error(columns["shift"], rounding), newton_error(',
            "max(0.0, newton_error(",
            REDONE,
        ),
        ("scores/last_layer/single_output.py", "INTERPOLATED = 1e-11", "INTERPOLATED = 1e-12", "test_leverage_counts_as_one_within_1e_11"),
        # The tail
        (
            TAIL,
            'named(source="scores", score=True)',
            'named(source="scores", predicts=True)',
            "test_every_score_handed_to_the_tail_is_held_against_the_members",
        ),
        (
            "tail/predictors.py",
            "COLUMNS = named(predicts=True)",
            "COLUMNS = named(predicts=True)[:3]",
            PREDICTORS,
        ),
        ("tail/predictors.py", "QUANTILES = (0.9, 0.99)", "QUANTILES = (0.9, 0.95)", PREDICTORS),
        ("tail/predictors.py", "SPREAD = (0.16, 0.84)", "SPREAD = (0.1, 0.9)", PREDICTORS),
        ("tail/predictors.py", "SHIFT_LEVELS = (0.02, 0.05, 0.1, 0.2)", "SHIFT_LEVELS = (0.05, 0.1, 0.2)", PREDICTORS),
        ("tail/predictors.py", "EXCESS_LEVELS = (0.01, 0.05, 0.1)", "EXCESS_LEVELS = (0.05, 0.1)", PREDICTORS),
        (PREDICTION, "LEAST_RECORDS = 500", "LEAST_RECORDS = 499", "test_a_prediction_needs_five_hundred_records_of_each_split"),
        ("tail/losses.py", "MOST_TIED = 0.1", "MOST_TIED = 0.2", "test_a_tenth_of_tied_losses_is_still_predicted_from"),
        (PREDICTION, "STRETCH = 0.1", "STRETCH = 0.2", BEYOND),
        (PREDICTION, "STRETCH = 0.1", "STRETCH = 0.05", BEYOND),
        (TAIL, "risk.auc_interval[0] > 0.5 or risk", "risk.auc_interval[0] > 0.5 and risk", APART),
        (TAIL, "clear_gap=clear", "clear_gap=True", APART),
        (TAIL, "reference_models: int = 64", "reference_models: int = 32", ASKED),
        (TAIL, "references=references, sizes=sizes", "references=64, sizes=sizes", ASKED),
        (TAIL, "BELOW = (1e-3, 1e-4, 1e-5)", "BELOW = (1e-3, 1e-4)", LEVELS),
        ("tail/losses.py", "SMALLEST_AUTO_LEVEL = 1e-3", "SMALLEST_AUTO_LEVEL = 1e-2", LEVELS),
        ("tail/groups.py", "LEAST_RECORDS = 20", "LEAST_RECORDS = 19", GROUPS),
        ("tail/groups.py", "MISSES = 10\n", "MISSES = 5\n", GROUPS),
        # Findings, pages, comparisons
        (LIMITS, "STRONG_TIMES = 10.0", "STRONG_TIMES = 20.0", DOCS),
        (OF_MODEL, '"auc": 0.6,', '"auc": 0.7,', DOCS),
        (LIMITS, "FEW_MEMBERS = 5", "FEW_MEMBERS = 4", FEW),
        (OF_MODEL, '{"members": FEW_MEMBERS,', '{"members": 3.0,', FEW),
        (OF_RECORDS, '"share": 0.2, "least_records": 100.0', '"share": 0.2, "least_records": 50.0', HUNDRED),
        (OF_RECORDS, '"least": 10.0', '"least": 11.0', "test_label_suspects_are_sought_among_ten_records_at_least"),
        ("report/page.py", "1 < allowed < FEW_MEMBERS", "1 < allowed < 4", FEW),
        ("_compare/entry.py", "risk.n_members) < FEW_MEMBERS", "risk.n_members) < 4", FEW),
        (LIMITS, "SWAPPED_AUC = 0.5", "SWAPPED_AUC = 0.4", SHARED),
        (LIMITS, "FAR_FROM_MINIMUM = 1.0", "FAR_FROM_MINIMUM = 2.0", SHARED),
        (LIMITS, "NONLINEAR_HEAD = 1e-3", "NONLINEAR_HEAD = 1e-2", SHARED),
        (LIMITS, "CROWDED = 0.25", "CROWDED = 0.5", SHARED),
        ("_compare/entry.py", "TOP = 0.01", "TOP = 0.02", COMPARED),
        ("joins.py", "MOST_RELABELLED = 0.01", "MOST_RELABELLED = 0.02", COMPARED),
        (
            "_compare/entry.py",
            "tnr_difference_interval(samples, fpr, coverage=level, seed=seed)",
            "tnr_difference_interval(samples, fpr, coverage=level, seed=0)",
            COMPARISON,
        ),
        (
            "_compare/entry.py",
            "auc_difference_interval(samples, coverage=level)",
            "auc_difference_interval(samples, coverage=0.95)",
            COMPARISON,
        ),
        # The command line
        ("cli/audits.py", '        "seed": seed,\n', "", COMMAND),
        ("cli/audits.py", '"fpr": "auto" if fpr is None else fpr', '"fpr": "auto"', COMMAND),
        ("cli/audits.py", '"damping": "auto" if damping is None else damping', '"damping": "auto"', COMMAND),
        ("cli/audits.py", '"fit_intercept": intercept, ', "", COMMAND),
        ("cli/gating.py", 'found["value"] <= limit', 'found["value"] < limit', COMMAND),
        ("cli/audits.py", "max_record_rate, max_tnr, max_auc)", "max_record_rate, max_auc, max_tnr)", COMMAND),
        # Evidence beyond the final weights
        ("_audit/exposing.py", "free=free, direction", "direction", WEIGHED),
        ("_exposure/sizes.py", "ratio <= COMPLEMENTS", "ratio <= 10 * COMPLEMENTS", COMPLEMENT_PAIRS),
        ("_audit/exposing.py", '"attack_rate": found.tpr(fpr)', '"attack_rate": found.tpr(0.05)', WEIGHED),
        ("_audit/exposing.py", 'resolved_level("auto", min(sizes))', "1e-3", OWN_LEVEL),
        ("_exposure/sources.py", "    if references and not sizes_of(", "    if False and not sizes_of(", SCALED),
        ("_audit/known_references.py", 'FOLDS if "design" in references.describe["plan"] else REFERENCES', "REFERENCES", UNTRAINED),
        ("_audit/exposing.py", "else why_withheld(weighing.found, held, fpr)", "else None", WITHHELD),
        ("_audit/withheld.py", "_heedless(evidence) or ", "", HEEDLESS),
        ("_audit/exposing.py", "observed and test_records < LEAST_TEST_RECORDS", "False", UNTESTED),
        ("_exposure/entry.py", "replace(arguments, notes=arguments.notes + odd)", "arguments", LEFT_OUT),
        ("_exposure/odd_rows.py", "FAR_BELOW_CHANCE = 4.0", "FAR_BELOW_CHANCE = 0.0", TWENTY),
        ("_exposure/sources.py", "counted=_counted(parts.rows)", "counted=None", NO_SIZES),
        ("_exposure/sources.py", "[source for source in full if not others or source.role != ORIGIN]", "full", ASIDE),
        ("_audit/other_models.py", "test_margins=unseen, role=ORIGIN)", "test_margins=unseen)", UNTRAINED),
        ("_audit/other_models.py", "and _says_nothing(seen, found, related)", "and False", KNOWS_NOTHING),
        ("_audit/other_models.py", "sample_weight=found.seen.sample_weight", "sample_weight=None", EARLIER),
        (ENTRY, "            *base_source(origin, read, options),\n", "", ORIGIN),
        ("cli/audits.py", '        "out_of_fold": out_of_fold,\n', "", SOURCES),
        # Models trained as evidence
        (
            "_audit/gather.py",
            "    known += [source(audited_of(found)) for source in trained]\n",
            "",
            f"{TRAINED}::test_an_audit_is_ranked_by_what_it_trained",
        ),
        (ENTRY, "traced=traced_epochs(given.loss_traces)", "traced=None", f"{TRAINED}::{BEST_EPOCH}"),
        (
            "_audit/trained_sources.py",
            '"seed": options.seed + 1',
            '"seed": options.seed',
            f"{TRAINED}::test_short_and_whole_references_do_not_share_their_draw",
        ),
        ("_audit/known_references.py", "early=stop is not None", "early=False", f"{TRAINED}::{BEST_EPOCH}"),
        ("_audit/trained_sources.py", "references, audited, words, attack=True", "references, audited, words", BY_FOUR),
        (
            "_audit/trained_sources.py",
            "_set_in(asked.reference_models), audited, words, attack=True",
            "_set_in(asked.reference_models), audited, words",
            f"{FOUR}::test_a_folder_of_such_a_set_serves_as_well",
        ),
        ("_audit/gather.py", "_model_risk(found, options, held, reference_tpr)", "_model_risk(found, options, held)", BY_FOUR),
        ("_audit/gather.py", '"reference_tpr": reference_tpr}', '"reference_tpr": None}', BY_FOUR),
        ("_audit/risks.py", "        reference_tpr=reference_tpr,\n", "", BY_FOUR),
        (
            "_audit/four_references.py",
            "if made is None or FOUR_REFERENCES not in made.predictors:",
            "if made is None:",
            f"{FOUR}::test_forests_keep_their_own_calibration",
        ),
        (
            "_audit/four_references.py",
            "return [entry if entry.reference_tpr is None else not_predicting(entry, why) for entry in known], None",
            "return known, None",
            f"{FOUR}::test_forests_keep_their_own_calibration",
        ),
        ("reference/four_models.py", "FPR = 0.01", "FPR = 0.02", IN_FOURS),
        ("reference/four_models.py", "ON_A_SIDE = 2", "ON_A_SIDE = 1", IN_FOURS),
        ("reference/four_models.py", 'variance="global"', 'variance="record"', IN_FOURS),
        (
            "reference/four_models.py",
            "rates.append(tpr_at_fpr(scores[:members], scores[members:], FPR))",
            "rates[:] = [tpr_at_fpr(scores[:members], scores[members:], FPR)]",
            IN_FOURS,
        ),
        (
            "_audit/known_references.py",
            "np.where(np.asarray(references.membership)[:, unseen], np.nan, statistic[:, unseen])",
            "statistic[:, unseen]",
            f"{TRAINED}::test_few_references_say_what_their_models_say",
        ),
        (
            "reference/plan.py",
            "BALANCED_FROM = 4",
            "BALANCED_FROM = 2",
            "tests/test_reference_plan.py::test_few_models_are_independent_halves",
        ),
        # All records together
        ("_audit/exposing.py", "largest_rate(found, fpr, seed=seed)", "largest_rate(found, 0.01, seed=seed)", TOGETHER),
        ("_audit/exposing.py", "retraining(found, fpr, seed=seed)", "retraining(found, fpr)", TOGETHER),
        ("_known/worst.py", "drawn.median, drawn.interval, source", "own, drawn.interval, source", SPOKEN),
        ("_answer/verdict.py", "else worst.own_interval", "else worst.interval", SPOKEN),
        ("_known/accusation.py", "PRIORS = (0.01, 0.1, 0.5)", "PRIORS = (0.01, 0.1)", RIGHT),
        ("_known/accusation.py", "(1 - known.fpr, 1 - rate)", "(1 - known.fpr, rate)", RIGHT),
        # Near twins
        (ENTRY, "        inputs=given_inputs(train),\n", "", f"{TWINS}::test_an_audit_looks_by_features_and_by_inputs"),
        (
            "_audit/near_twins.py",
            'labels=np.asarray(found.identity["target"]), seed',
            "labels=None, seed",
            f"{TWINS}::test_an_audit_looks_by_features_and_by_inputs",
        ),
        (
            "_audit/near_twins.py",
            "np.hstack([points, found.targets])",
            "points",
            f"{TWINS}::test_the_target_of_a_regression_is_one_more_feature",
        ),
        ("_audit/near_twins.py", "CHANCE = 1e-5", "CHANCE = 1e-3", f"{TWINS}::test_scales_and_dimension_are_those_of_all_distances"),
        (OF_RECORDS, '"share": 0.001, "least": 2.0', '"share": 0.0009, "least": 2.0', LIMIT),
        (OF_RECORDS, '"share": 0.001, "least": 2.0', '"share": 0.001, "least": 1.0', LIMIT),
        # Loss traces
        ("_audit/tracing.py", "early_trace_mean(ordered, given.best)", "early_trace_mean(given.losses, given.best)", TRACED_IDS),
        ("_audit/tracing.py", "early_trace_mean(ordered, given.best)", "early_trace_mean(ordered, ordered.shape[1] - 1)", TRACED),
        ("traces/recorder.py", "or loss < self._kept", "or loss > self._kept", KEPT),
        ("traces/recorder.py", "            self._kept = kept_loss(path)\n", "            pass\n", RESUMED),
        ("_findings/trust_checks.py", 'limits={"share": 0.05}', 'limits={"share": 0.0500001}', LIMIT),
        # Reference models and the ground truth
        (TRUTH, "SCORES = named(score=True)", 'SCORES = named(score=True, source="scores")', EVERY),
        (
            COLUMNS,
            '"traces",\n        unit="nats",\n        score=True,\n        page',
            '"traces",\n        unit="nats",\n        page',
            EVERY,
        ),
        (COLUMNS, 'kind="share",\n        score=True,\n        page=8,', 'kind="share",\n        page=8,', EVERY),
        (TRUTH, "RANKED_TRUTHS = named(truth=True)", "RANKED_TRUTHS = named(truth=True)[:3]", EVERY),
        ("metrics/tables.py", "RECALLS = ((0.01, 0.05), (0.01, 0.01), (0.05, 0.05))", "RECALLS = ((0.01, 0.05), (0.05, 0.05))", EVERY),
        (TRUTH, "[scores], seed=seed))", "[scores]))", DRAWN),
        (ROWS, '("variant", "variance", "center", "floor")', '("variant", "variance", "center")', OPTIONS),
        (ROWS, "else -np.asarray(of.loss)", "else of.statistic", BY_LOSS),
        (ROWS, ' and scene.options.statistic == "auto" else "larger"', ' else "larger"', BY_LOSS),
        (ROWS, '("variant", "gamma", "a")', '("variant", "a")', OPTIONS),
        (ROWS, "_GAMMA, _GAMMAS = 2.0,", "_GAMMA, _GAMMAS = 1.0,", OPTIONS),
        (ROWS, "{LANGUAGE_MODEL: 1.0}", "{LANGUAGE_MODEL: 2.0}", SEQUENCE_RMIA),
        (ROWS, "    a: float = 0.3", "    a: float = 0.5", OPTIONS),
        (TRUTH, "FEW_MODELS, FEW_RECORDS = 32, 1000", "FEW_MODELS, FEW_RECORDS = 30, 1000", SIZE),
        (TRUTH, "FEW_MODELS, FEW_RECORDS = 32, 1000", "FEW_MODELS, FEW_RECORDS = 32, 998", SIZE),
        ("reference/target_attacks.py", "LEVELS = (1e-3, 1e-2, 1e-1)", "LEVELS = (1e-3, 1e-1)", SIZE),
        (LIMITS, "OWN_SPREAD_MODELS = 64", "OWN_SPREAD_MODELS = 63", "test_lira_pools_variances_below_sixty_four_models"),
        # Language models: other models, copies, tokens on a page; the spread that bends
        (ENTRY, "others = OtherModels(checkpoint,", "others = OtherModels(None,", SEQUENCE_SOURCES),
        (ENTRY, 'given_outputs(out_of_fold, "out_of_fold"), trained_sources(', "None, trained_sources(", SEQUENCE_SOURCES),
        ("_audit/language.py", "tokens, duplicate_evidence(duplicates), *traces", "tokens, *traces", COPIES),
        ("_audit/language.py", ' | {"near": near_sequence_facts(duplicates)}', "", COPIES),
        ("_audit/language.py", "told, *others_told, *exposed)", "told, *others_told)", SEQUENCE_SOURCES),
        ("_audit/own_gains.py", "else None, SHARE)", "else None, 1.0)", OWN_GAIN),
        ("_audit/language.py", "below, unseen, gained)", "below, unseen)", OWN_ABSENT),
        ("storage/pretrained_folders.py", "return weight_files(folder)", "return tuple(folder.glob('model*.safetensors'))", SHARDED),
        ("_audit/sequence_sources.py", "(Evidence(SOURCE, absent=dict.fromkeys(_SIZES, BASE_ALONE)),)", "()", BASE_RANKS),
        (
            "cli/contents.py",
            "made.base if base is None else",
            "None if base is None else",
            "tests/test_token_gains.py::test_the_command_shows_tokens_of_a_target",
        ),
        (
            "_known/rate.py",
            " or base_left_out(audit) is not None",
            "",
            "tests/test_answer.py::test_a_base_that_knows_nothing_of_the_texts_is_no_comparison",
        ),
        (
            "_known/rate.py",
            " or splits_differ(audit) is not None",
            "",
            "tests/test_answer.py::test_nothing_is_known_where_the_base_tells_the_splits_apart",
        ),
        (
            "_answer/verdict.py",
            'fewest, known.source == "losses" and audit.task == LANGUAGE_MODEL)',
            "fewest, False)",
            "tests/test_answer.py::test_the_tail_of_a_language_models_losses_is_no_all_clear",
        ),
        (
            "report/shown_tokens.py",
            "_apart(gains.base_loss[places]",
            "_apart(gains.base_loss[places] * 0 + audit.records['base_loss']",
            "tests/test_token_gains.py::test_gains_over_another_base_than_the_audits_are_refused",
        ),
        (
            "_exposure/held_out.py",
            "FARTHER = 1.2",
            "FARTHER = 1.1",
            "tests/test_exposure_held_out.py::test_margins_that_end_too_early_are_refused",
        ),
        (
            "_exposure/held_out.py",
            "MODELS, RECORDS, MARGINS = 64,",
            "MODELS, RECORDS, MARGINS = 8,",
            "tests/test_exposure_held_out.py::test_offsets_of_whole_models_are_no_short_reach",
        ),
        (
            "_exposure/held_out.py",
            "record = with_own_squares(spreads, sides).record",
            "record = spreads.record",
            "tests/test_exposure_held_out.py::test_a_left_out_margin_is_not_part_of_its_own_spread",
        ),
        (
            "_audit/exposing.py",
            " if entry.source.name not in weighing.covariates_only]",
            "]",
            "tests/test_audit_exposure.py::test_refused_rates_are_not_put_down_to_a_source_that_is_a_covariate",
        ),
        (
            "_audit/exposing.py",
            "covariates=trace_covariates(trace.columns, trace.stamp)",
            "covariates=trace.columns",
            "tests/test_boosting_models.py::test_beside_references_the_range_of_rounds_still_orders_nothing",
        ),
        (
            "_known/needed.py",
            "needed_for_sizes(len(audit.records), len(audit.nonmember_losses))",
            "needed_for_sizes(len(audit.records), len(audit.records))",
            "tests/test_offers.py::test_sizes_are_promised_from_as_many_references_as_they_take",
        ),
        (
            "_answer/offers.py",
            "and had < needed.models:",
            "and True:",
            "tests/test_offers.py::test_references_that_gave_no_sizes_are_not_offered_again",
        ),
        (
            "_exposure/entry.py",
            "compared, held_against(tail), weights",
            "compared, sizes, weights",
            "tests/test_exposure_held_out.py::test_margins_at_two_ends_give_the_order_only",
        ),
        (
            "_audit/exposing.py",
            '"tail": None if found.state is None or found.state.tail is None else asdict(found.state.tail),',
            '"tail": None,',
            "tests/test_audit_exposure.py::test_rates_are_refused_where_left_out_references_contradict_the_spread",
        ),
        (
            "_exposure/rules.py",
            "bent: bool = True",
            "bent: bool = False",
            "tests/test_exposure.py::test_the_spread_may_rise_and_fall_again",
        ),
        (LIMITS, "LARGEST_Z = 4.0", "LARGEST_Z = 5.0", PARITY),
        ("reference/parity.py", "LEAST_SPREAD = 0.01", "LEAST_SPREAD = 0.02", PARITY),
        ("reference/parity.py", " and not low <= value <= high", "", WITHIN),
        # Votes of forests: on disk, in attacks and in the exposure
        ("reference/run.py", '{"task": task} | told_votes(voting_parts(model))', '{"task": task}', VOTED),
        ("reference/work.py", ", votes=voting_parts(model))", ")", VOTES_TOLD),
        ("reference/model_writing.py", "**told_votes(outcome.votes),", "", VOTES_TOLD),
        ("reference/store.py", 'return _stacked(self, "statistic", self.votes)', 'return _stacked(self, "statistic")', VOTED),
        ("reference/store.py", "return Recorded(there, self.votes)", "return Recorded(there)", VOTED),
        ("reference/store.py", "model_path(self.folder, number)), self.votes)", "model_path(self.folder, number)))", VOTED),
        (ROWS, 'max(chosen["floor"], one_vote(scene.references.votes))', 'chosen["floor"]', FLAT_VOTES),
        ("_audit/known_references.py", ", votes=references.votes)", ")", VOTED_ONCE),
        (
            "_audit/with_references.py",
            "    if not references.votes:",
            "    if True:",
            "tests/test_reference_votes.py::test_the_command_scores_forests_by_votes",
        ),
        (TRUTH, "references if audit is None else in_votes_of(references, audit)", "references", UNTOLD),
        ("_audit/without_records.py", "facts |= votes", "facts |= {}", UNTOLD),
        # Splits of boosted trees that give way
        ("scores/trees/yielding_splits.py", "RIVALS = 8", "RIVALS = 4", WALKED),
        ("scores/trees/yielding_splits.py", "LEVELS = 4", "LEVELS = 3", WALKED),
        ("scores/trees/left_out.py", "stand = parents is None or rule.steps > 1", "stand = True", OF_BOTH),
        ("_audit/gather.py", "leaf_evidence(counted, yielding)", "leaf_evidence(counted)", YIELDS),
        (COLUMNS, "ranks=4,\n        page=23", "ranks=9,\n        page=23", YIELDS),
    )
)
