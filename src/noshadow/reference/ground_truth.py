"""Compute ground truth for an audit.

It says what the attacks found, and how closely each score ranks records as they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from noshadow._known import exposure_rests_on, own_fpr
from noshadow.arguments import PROGRESS
from noshadow.checks import Array, named_in_errors, refuse
from noshadow.columns import LANGUAGE_MODEL, named
from noshadow.joins import Held, Join, held_by, join, loss_floor, require_agreement
from noshadow.losses import hard_labels
from noshadow.metrics import agreement_table, noise_ceiling
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference.attack_list import ATTACKS, AttackOptions
from noshadow.reference.opening import MIXED_VOTES
from noshadow.reference.plan import BALANCED_FROM
from noshadow.reference.store import References, in_votes
from noshadow.reference.target_attacks import attacks_on_references, attacks_on_target, resolved_levels
from noshadow.reference.truth import RecordTruth, audited_models, record_truth
from noshadow.results import Audit, Evidence, GroundTruth
from noshadow.storage.versions import versions_of
from noshadow.votes import VOTES

SCORES = named(score=True)
FEW_MODELS, FEW_RECORDS = 32, 1000
RANKED_TRUTHS = named(truth=True)
SOURCE = "reference models"
OF_EXPOSURE = "agreement of exposure"
WITH_ITSELF = not_applicable("the exposure was weighed from these very reference models, and would agree with itself")


@named_in_errors
def ground_truth(
    references: References,
    audit: Audit | None = None,
    *,
    fpr: float | Sequence[float] | None = None,
    options: AttackOptions | None = None,
    progress: bool = PROGRESS,
) -> tuple[GroundTruth, pd.DataFrame]:
    """Run every attack over a set of reference models, and compare the cheap scores with them.

    The target is attacked, too.

    Args:
        references: a complete set, from `load_references`.
        audit: the target's audit: its score columns are compared with the attacks on its training
            records.
        fpr: false-positive rate, or rates, to measure TPR at; default those of 0.001, 0.01 and 0.1
            that the non-members resolve. The audit's own is measured, too, where they resolve it.
        options: variants of the attacks. progress: bars on a terminal.

    Returns:
        (GroundTruth, table): the table has one row per record of the pool: id, member (of the
            target's training data),
        lira_success, lira_d, lira_tpr, rmia_success, out_loss and, where they apply, shokri_success
        and memorization.

    Raises:
        InputError: the audit is of another model or other records; a level the non-members do not
            resolve.

    Cost: O(rn) for each attack, O(folds·r·n·m) for Shokri; memory O(n) beside the memory-mapped
        signals, and O(rn) with AttackOptions(statistic="loss").
    """
    _require_attackable(references)
    references = references if audit is None else in_votes_of(references, audit)
    chosen = options or AttackOptions()
    levels = resolved_levels(references, fpr, None if audit is None else own_fpr(audit))
    rows, doubts = (None, ()) if audit is None else audited_rows(audit, references)
    truth = record_truth(references, chosen, levels=levels, progress=progress)
    absent = dict(truth.not_applicable)
    attacks = attacks_on_references(truth, levels)
    if references.target is None:
        absent["attacks on the target"] = not_applicable("the set was trained without a target model")
    elif references.member.all():
        absent["attacks on the target"] = not_applicable("the pool holds no non-members of the target (train_references(…, pool='train'))")
    else:
        attacks = attacks_on_target(truth, levels) + attacks
    agreement, ceiling, targets = _agreement(references, truth, audit, rows, absent, chosen.seed)
    found = GroundTruth(
        models=references.plan.models,
        records=references.plan.records,
        fraction=references.plan.fraction,
        variants={attack.name: attack.choices(truth.scene) for attack in ATTACKS if attack.choices is not None},
        attacks=attacks,
        agreement=agreement,
        ceiling=ceiling,
        targets=targets,
        parity=references.parity(),
        not_applicable=absent,
        notes=truth.notes + doubts + _sentences(references, rows),
        provenance=references.stamp() | {"noshadow": versions_of("noshadow")["noshadow"]},
    )
    return found, pd.DataFrame({"id": references.ids, "member": references.member} | truth.columns)


def in_votes_of(references: References, audit: Audit) -> References:
    """The set of an audited forest, its margins in votes where its files do not say that it votes.

    Files of earlier versions and outputs in the place of a model do not.
    """
    parts = int(audit.provenance.get("inputs", {}).get(VOTES, 0))
    return in_votes(references, parts) if parts and not references.votes and MIXED_VOTES not in references.notes else references


def _require_attackable(references: References) -> None:
    """Refuse sets in which attacks cannot set each model against the others, record by record."""
    models, folded = references.plan.models, "design" in references.describe["plan"]
    if folded or models < BALANCED_FROM:
        got = f"{models} models, each without one fold of the training records" if folded else f"{models}"
        hint = "Train some with train_references(…, models=64) (noshadow reference train)."
        refuse("references", f"hold at least {BALANCED_FROM} models on random parts of all records", got, hint)


@named_in_errors
def with_ground_truth(audit: Audit, references: References, **options: Any) -> Audit:
    """Add the attacks' columns to the audit's record table, and the agreement beside it.

    The columns are lira_success, lira_d, rmia_success (…).

    Arguments as in `ground_truth`. What an earlier call added is replaced.
    """
    found, table = ground_truth(references, audit, **options)
    rows = audited_rows(audit, references)[0]
    columns = {name: table[name].to_numpy()[rows] for name in named(source=SOURCE) if name in table}
    stamp = {"models": found.models, "variants": found.variants, "plan": found.provenance}
    return replace(audit, ground_truth=found).with_evidence(Evidence(SOURCE, columns, stamp=stamp))


def audited_rows(audit: Audit, references: References) -> tuple[Array, tuple[str, ...]]:
    """Find where each of the audit's records stands in the pool, by id.

    Notes tell of losses that are not quite those stored.

    Raises:
        InputError: the audit is of another model or other records: by its weights, ids, targets or
            losses.
    """
    expected, given = references.weights_sha256, audit.provenance.get("hashes", {}).get("weights")
    if expected and given and expected != given:
        refuse("audit", "be of the model these references were trained for", f"weights {given[:12]}, not {expected[:12]}")
    ours = held_by(audit.records, losses=True)
    found, members, unknown = joined_members(references, ours)
    if unknown:
        refuse("audit", f"hold the {len(members)} training records of the reference set", unknown, "Give both the same ids.")
    hint = "Are the rows in another order? Audit the model on the data that the references were trained on, or give both the same ids."
    notes = require_agreement(found, "audit", "the reference set's target", hint)
    return members[found.second], notes


def joined_members(references: References, ours: Held) -> tuple[Join, Array, str]:
    """Join records with the training records of the target of a reference set.

    Args:
        references: the set. ours: what an audit says about its records.

    Returns:
        The join; the rows of the target's training records in the pool; and, where the two do not
        name the same records, what is different in words, else nothing.
    """
    members = np.flatnonzero(references.member)
    targets = references.targets[members]
    labels = hard_labels(targets) if references.task == "classification" else targets
    theirs = Held(
        references.ids[members],
        None if references.task == LANGUAGE_MODEL else labels,  # sequences have no target: their losses say whose they are
        None if references.target is None else np.asarray(references.target.loss)[members],
    )
    found = join(ours, theirs, floor=loss_floor(targets, references.task))
    unknown = np.delete(ours.ids, found.first)
    if not len(unknown) and len(ours.ids) == len(members):
        return found, members, ""
    first = f" (the first: '{unknown[0]}')" if len(unknown) else ""
    return found, members, f"{len(ours.ids)} records, {len(unknown)} of them unknown there{first}"


def _agreement(
    references: References, truth: RecordTruth, audit: Audit | None, rows: Array | None, absent: dict[str, str], seed: int
) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...], int]:
    """Compare scores with attacks for this audit's model and for the audited reference models.

    The result is the rows, the noise ceiling, and the number of audited reference models.
    """
    tables: list[dict[str, Any]] = []
    if audit is not None and rows is not None:
        itself = named(source="exposure") if exposure_rests_on(audit, references.stamp()["plan_digest"]) else ()
        scores = {name: audit.records[name].to_numpy(np.float64) for name in SCORES if name in audit.records and name not in itself}
        if itself:
            absent[OF_EXPOSURE] = WITH_ITSELF
        tables += _rows(agreement_table([_restricted(truth.columns, rows)], [scores], seed=seed))
    several = [] if truth.unaudited is None else _audited(references)
    if truth.unaudited is not None:
        truths = [_restricted(truth.unaudited, inside) for inside, _ in several]
        tables += _rows(agreement_table(truths, [scores for _, scores in several], seed=seed))
    elif audit is None:
        alone = "no audit was given, and reference models were not audited or too few are left beside them"
        absent["agreement"] = Absent("not available", alone)
    ceiling: list[dict[str, Any]] = []
    if truth.halves is not None:
        chosen = np.arange(references.plan.records) if rows is None else rows
        first, second = (_restricted(half, chosen) for half in truth.halves)
        for name in first:
            ceiling += _rows(noise_ceiling(first[name], second[name], attack=name, seed=seed))
    return tuple(tables), tuple(ceiling), len(several)


def _restricted(columns: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    return {name: columns[name][rows] for name in RANKED_TRUTHS if name in columns}


def _audited(references: References) -> list[tuple[Array, dict[str, Array]]]:
    """List training records and score columns of each reference model that was audited.

    Models were audited when they were trained. An entry is (records it was trained on, score
    columns on those).
    """
    columns = [references.extra(model) for model in range(audited_models(references))]
    kept = [{name: values for name, values in found.items() if name in SCORES} for found in columns]
    return [(references.plan.members(model), scores) for model, scores in enumerate(kept)]


def _sentences(references: References, rows: Array | None) -> tuple[str, ...]:
    """What a reader must know about the size of the experiment."""
    models, records = references.plan.models, references.plan.records if rows is None else len(rows)
    found = []
    if models < FEW_MODELS:
        found.append(
            f"{models} reference models are few: LiRA is understated, and on records that do not leak its success over the reference "
            "models falls somewhat below 0.5; 64 are usual"
        )
    if records < FEW_RECORDS:
        found.append(f"the top 1 % of {records} records are {max(round(records / 100), 1)}: recalls of so few say little")
    own = references.describe["engine_reason"]
    return (*found, *(note for note in references.notes if note != own))


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
