"""A fixed set of audits that between them write every column there is, for tests of tables."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

import noshadow as ns
from noshadow._audit.exposing import Known
from noshadow._audit.gather import audit_view
from noshadow._audit.options import GivenColumns, Options
from noshadow._exposure import Source
from noshadow.figures import Evidence
from noshadow.losses import record_margins
from noshadow.outcomes import Damping
from noshadow.reference import train_references
from noshadow.reference.attack_list import AttackOptions
from noshadow.reference.ground_truth import with_ground_truth
from noshadow.views import View
from tiny_language_models import CONTEXT, gpt2, ragged

RECORDS, FEATURES = 40, 5


def _data(task, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * RECORDS, FEATURES))
    signal = x @ rng.normal(size=(FEATURES, 3)) + 0.7 * rng.normal(size=(2 * RECORDS, 3))
    y = {"regression": signal[:, 0], "outputs": signal, "binary": (signal[:, 0] > 0) * 1, "classes": signal.argmax(1)}[task]
    return (x[:RECORDS], y[:RECORDS]), (x[RECORDS:], y[RECORDS:])


def _signals(task):
    """Features, logits or predictions of a fixed linear head, targets, for both splits."""
    head = np.random.default_rng(1).normal(size=(FEATURES, {"classes": 3, "outputs": 3}.get(task, 1)))
    return [ns.Signals(x, x @ head, y) for x, y in _data(task)]


def _network(outputs):
    """A small network with fixed weights: nothing is trained, so that nothing depends on the order of sums in training."""
    rng = np.random.default_rng(2)
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, outputs)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=tuple(parameter.shape))))
    return model


def signals_regression():
    return ns.audit_signals(*_signals("regression"), weight_decay=1e-3, progress=False)


def signals_several_outputs():
    return ns.audit_signals(*_signals("outputs"), damping=0.5, progress=False)


def signals_binary():
    return ns.audit_signals(*_signals("binary"), task="binary", damping=0.5, progress=False)


def signals_classes_in_groups_with_traces():
    train, test = _signals("classes")
    names = ["north" if i % 3 else "south" for i in range(RECORDS)]
    losses = ns.audit_signals(train, test, progress=False).member_losses
    traces = np.stack([3.0 * losses + 0.1, 2.0 * losses, losses], axis=1)
    return ns.audit_signals(train, test, damping=0.1, groups=names, test_groups=names, loss_traces=traces, progress=False)


def signals_with_traces_of_unseen_records():
    train, test = _signals("regression")
    final = ns.audit_signals(train, test, progress=False)
    traces = ns.LossTraces()
    for seen, unseen in ((4.0, 3.0), (2.0, 0.5), (1.5, 0.75), (1.0, 1.0)):
        traces.append(seen * final.member_losses + 0.1 * (seen - 1.0), unseen * final.nonmember_losses)
    return ns.audit_signals(train, test, weight_decay=1e-3, loss_traces=traces, progress=False)


def signals_without_features():
    train, test = _signals("classes")
    bare = [ns.Signals(None, split.outputs, split.targets) for split in (train, test)]
    return ns.audit_signals(*bare, progress=False)


def signals_by_ekfac():
    options = {"method": "ekfac", "refine": 10}
    return ns.audit_signals(*_signals("classes"), damping=0.5, score_options=options, progress=False)


def module_last_layer():
    return ns.audit(_network(3), *_data("classes"), weight_decay=1e-2, progress=False)


def module_all_layers():
    return ns.audit(_network(3), *_data("classes"), layers="all", damping=0.5, progress=False)


def logistic_regression_with_a_rate():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1200, 80))
    y = np.where(rng.uniform(size=1200) < 1 / (1 + np.exp(-2 * x[:, 0])), "ill", "well")
    model = LogisticRegression(C=100.0, tol=1e-10, max_iter=5000).fit(x[:600], y[:600])
    return ns.audit(model, (x[:600], y[:600]), (x[600:], y[600:]), fpr=0.01, progress=False)


def ridge():
    train, test = _data("regression")
    return ns.audit(Ridge(alpha=2.0).fit(*train), train, test, progress=False)


def boosted_trees():
    train, test = _data("classes")
    return ns.audit(GradientBoostingClassifier(n_estimators=5, random_state=0).fit(*train), train, test, progress=False)


def forest():
    train, test = _data("classes")
    return ns.audit(RandomForestClassifier(10, random_state=0).fit(*train), train, test, progress=False)


def language_model():
    train, test = (ragged(np.random.default_rng(k).integers(5, CONTEXT, RECORDS), seed=k + 1) for k in range(2))
    return ns.audit(gpt2(), train, test, progress=False)


class _Letters:
    """A tokenizer whose tokens are letters."""

    def decode(self, tokens, skip_special_tokens):
        return "".join(chr(ord("a") + token) for token in tokens)


def with_a_base_model():
    train, test = (ragged(np.random.default_rng(k).integers(5, CONTEXT, RECORDS), seed=k + 1) for k in range(2))
    return ns.audit(gpt2(), train, test, base=gpt2(seed=1), tokenizer=_Letters(), progress=False)


def _fitted(x, y, indices, seed):
    return LogisticRegression(C=10.0, tol=1e-10, max_iter=5000).fit(x[indices], y[indices])


def with_attacks():
    train, test = _data("classes")
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    fit = partial(_fitted, x, y)
    model = fit(np.arange(RECORDS), 0)
    audited = ns.audit(model, train, test, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        references = train_references(Path(folder) / "set", fit, train, test, model=model, models=16, workers=1, progress=False)
        return with_ground_truth(audited, references, options=AttackOptions(shokri=True), progress=False)


def with_distinguishability():
    train, test = _data("classes")
    audited = ns.audit(_network(3), train, test, weight_decay=1e-2, progress=False)
    return ns.with_lood(audited, ns.lood_audit(*train, depth=1, noise=0.2))


def with_out_of_fold_outputs():
    train, test = _signals("classes")
    rng = np.random.default_rng(5)
    return ns.audit_signals(train, test, damping=0.1, out_of_fold=train.outputs + rng.normal(size=train.outputs.shape), progress=False)


def with_earlier_states():
    """A checkpoint and a base model: the same network with other weights."""
    train, test = _data("classes")
    model, early, base = _network(3), _network(3), _network(3)
    with torch.no_grad():
        for k, other in ((0.7, early), (0.4, base)):
            for parameter in other.parameters():
                parameter.mul_(k)
    return ns.audit(model, train, test, weight_decay=1e-2, checkpoint=early, base=base.state_dict(), progress=False)


def drawn_references(found, *, models=6, seed=6):
    """Margins of models that were each trained on half of the records, around the audited model's."""
    rng = np.random.default_rng(seed)
    own, unseen = (record_margins(split.outputs, split.targets, found.task) for split in (found.train, found.seen.test))
    member = rng.random((models, len(own))) < 0.5
    margins = own - 1.5 * ~member + 0.5 * rng.normal(size=member.shape)
    there = unseen + 0.5 * rng.normal(size=(models, len(unseen)))
    return Known(Source("drawn references", {}, margins, member, there, trainings=models), Evidence("drawn references"))


def weighed_signals(sources, *, records=600, fpr="auto", seed=0):
    """An audit of many records, with sources that a test has drawn."""
    rng = np.random.default_rng(7)
    head = rng.normal(size=(FEATURES, 3))
    splits = []
    for _ in range(2):
        x = rng.normal(size=(records, FEATURES))
        splits.append(ns.Signals(x, x @ head, (x @ head + rng.normal(size=(records, 3))).argmax(1)))
    seen = replace(View(*splits, "classification", None, True, True, Damping(0.5, "given", "given"), None, None, None, (), ""), inputs={})
    options = Options("classification", 0.5, None, fpr, seed, False, "audit")
    return audit_view(seen, options, GivenColumns(), signal_seconds=0.0, sources=sources)


def with_drawn_references():
    return weighed_signals([drawn_references])


def with_folds():
    train, test = _data("classes")
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    fit = partial(_fitted, x, y)
    return ns.audit(fit(np.arange(RECORDS), 0), train, test, folds=2, train_fn=fit, training_options={"workers": 1}, progress=False)


AUDITS = {
    made.__name__: made
    for made in (
        signals_regression,
        signals_several_outputs,
        signals_binary,
        signals_classes_in_groups_with_traces,
        signals_with_traces_of_unseen_records,
        signals_without_features,
        signals_by_ekfac,
        module_last_layer,
        module_all_layers,
        logistic_regression_with_a_rate,
        ridge,
        boosted_trees,
        forest,
        language_model,
        with_attacks,
        with_distinguishability,
    )
}


# Their tables hold what `exposure` makes of its sources; its own tests hold those figures.
WEIGHED = {
    made.__name__: made for made in (with_out_of_fold_outputs, with_earlier_states, with_drawn_references, with_folds, with_a_base_model)
}
