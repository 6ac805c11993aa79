"""Scores of sequences over a language model's output head, against autograd, explicit Kronecker matrices and refits without a sequence."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr

import noshadow as ns
from noshadow.checks import NotApplicable
from noshadow.scores import sequences as module
from noshadow.scores.sequences import sequence_score_bytes, sequence_scores, token_variances
from noshadow.views import TokenHead, sequence_features
from tiny_language_models import gpt2, ragged

LENGTHS = (2, 5, 16, 9, 3, 16, 12, 7)
# Everything is float64; the oracles invert matrices of condition 1e4 or less.
CLOSE = {"rtol": 1e-8, "atol": 1e-12}


def made_head(*, n=14, m=5, d=3, bias=False, scale=1.0, seed=0, damping=0.3, steps=0):
    """A head over random features, with labels drawn from it; after `steps` of L-BFGS at the minimum of its own penalised objective."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 9, n)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    features, weight = rng.normal(size=(starts[-1], d)), scale * rng.normal(size=(m, d))
    logits = features @ weight.T
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    head = TokenHead(features, labels, starts, weight, rng.normal(size=m) if bias else None, False, 0.0)
    return replace(head, weight=refitted(head, damping, steps=steps).numpy()) if steps else head


def sequence_loss(head, weight, i, bias=None):
    rows = slice(head.starts[i], head.starts[i + 1])
    logits = torch.from_numpy(head.features[rows]) @ weight.T
    return F.cross_entropy(logits if bias is None else logits + bias, torch.from_numpy(head.labels[rows]))


def refitted(head, damping, *, without=None, steps=200):
    weight = torch.from_numpy(head.weight.copy()).requires_grad_()
    optimiser = torch.optim.LBFGS([weight], max_iter=steps, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        losses = [sequence_loss(head, weight, i) for i in range(len(head.starts) - 1) if i != without]
        objective = sum(losses) + damping / 2 * (weight**2).sum()
        objective.backward()
        return objective

    optimiser.step(closure)
    return weight.detach()


def gradients(head):
    """(n, m, d) by autograd, the bias in the last column."""
    weight = torch.from_numpy(head.weight).requires_grad_()
    bias = None if head.bias is None else torch.from_numpy(head.bias).requires_grad_()
    found = []
    for i in range(len(head.starts) - 1):
        parts = torch.autograd.grad(sequence_loss(head, weight, i, bias), [weight] if bias is None else [weight, bias])
        found.append(torch.cat([part.reshape(len(weight), -1) for part in parts], 1))
    return torch.stack(found).numpy()


def token_blocks(head):
    """(sequence, 1/T, W, h̃) of every token, one at a time."""
    for i in range(len(head.starts) - 1):
        for t in range(head.starts[i], head.starts[i + 1]):
            logits = head.weight @ head.features[t] + (0 if head.bias is None else head.bias)
            p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            row = head.features[t] if head.bias is None else np.append(head.features[t], 1.0)
            yield i, 1 / (head.starts[i + 1] - head.starts[i]), np.diag(p) - np.outer(p, p), row


def dense_curvatures(head):
    """(n, md, md): every sequence's Gauss–Newton curvature, class-major like a gradient (m, d) laid flat."""
    size = len(head.weight) * (head.weight.shape[1] + (head.bias is not None))
    found = np.zeros((len(head.starts) - 1, size, size))
    for i, weight, spread, row in token_blocks(head):
        found[i] += weight * np.kron(spread, np.outer(row, row))
    return found


def dense_ekfac(head, damping, basis):
    """The EK-FAC matrix spelled out: explicit eigenvectors, their Kronecker product, its diagonal of the dense curvature."""
    tokens = list(token_blocks(head))
    features = np.linalg.eigh(sum(weight * np.outer(row, row) for _, weight, _, row in tokens))[1]
    classes = (
        np.linalg.eigh(sum(weight * spread for _, weight, spread, _ in tokens))[1] if basis == "eigenvectors" else np.eye(len(head.weight))
    )
    product = np.kron(classes, features)
    diagonal = np.diag(product.T @ dense_curvatures(head).sum(0) @ product)
    return product @ np.diag(diagonal + damping) @ product.T


@pytest.mark.parametrize("basis", ["eigenvectors", "tokens"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_columns_are_those_of_the_explicit_kronecker_matrix(basis, bias):
    head = made_head(bias=bias)
    scores = sequence_scores(head, damping=0.2, class_basis=basis)
    matrix, flat = dense_ekfac(head, 0.2, basis), gradients(head).reshape(14, -1)
    np.testing.assert_allclose(scores.influence, np.einsum("ni,ij,nj->n", flat, np.linalg.inv(matrix), flat), **CLOSE)
    np.testing.assert_allclose(scores.leverage, [np.trace(np.linalg.solve(matrix, own)) for own in dense_curvatures(head)], **CLOSE)
    np.testing.assert_allclose(scores.gradient_norm, np.linalg.norm(flat, axis=1), **CLOSE)
    assert scores.effective_dof == pytest.approx(scores.leverage.sum(), rel=1e-9)
    assert scores.method == ("ekfac" if basis == "eigenvectors" else "ekfac-tokens") and scores.parameters == flat.shape[1]


def test_gradients_are_those_of_the_model_itself():
    # An output layer of its own: autograd through the whole model reaches it through the head only.
    model, data = gpt2(tie_word_embeddings=False).double().eval(), ragged(LENGTHS)
    head = sequence_features(model, data, progress=False)[1]
    expected = []
    for tokens in data:
        ids = torch.tensor([tokens])
        expected.append(torch.autograd.grad(model(ids, labels=ids).loss, model.lm_head.weight)[0].norm().item())
    # transformers takes the loss from float32 logits.
    np.testing.assert_allclose(sequence_scores(head).gradient_norm, expected, rtol=1e-5)
    assert not head.tied


def test_tied_weights_count_as_the_head_only():
    model, data = gpt2().double().eval(), ragged(LENGTHS)
    head = sequence_features(model, data, progress=False)[1]
    scores = sequence_scores(head)
    for i, tokens in enumerate(data):
        ids, weight = torch.tensor([tokens]), model.lm_head.weight.detach().clone().requires_grad_()
        logits = model.transformer(ids).last_hidden_state[0, :-1].detach() @ weight.T
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, ids[0, 1:]), weight)
        assert scores.gradient_norm[i] == pytest.approx(float(gradient.norm()), rel=1e-10)
    assert head.tied and any("shares its weights with the input embedding" in note for note in scores.notes)


def test_exact_when_all_tokens_are_predicted_alike():
    # Weights of zero predict every token alike, so every W_t is the same and 𝓗 is a Kronecker product.
    head = made_head(scale=0.0, m=6, d=4)
    flat, exact = gradients(head).reshape(14, -1), dense_curvatures(head).sum(0) + 0.1 * np.eye(24)
    expected = np.einsum("ni,ij,nj->n", flat, np.linalg.inv(exact), flat)
    np.testing.assert_allclose(sequence_scores(head, damping=0.1).influence, expected, **CLOSE)


@pytest.mark.parametrize("basis", ["eigenvectors", "tokens"])
def test_the_order_is_that_of_the_exact_curvature(basis):
    head = made_head(n=60, m=6, d=4)
    flat, exact = gradients(head).reshape(60, -1), dense_curvatures(head).sum(0) + 0.5 * np.eye(24)
    expected = np.einsum("ni,ij,nj->n", flat, np.linalg.inv(exact), flat)
    found = sequence_scores(head, damping=0.5, class_basis=basis).influence
    assert spearmanr(found, expected).statistic > 0.95  # 0.99 with eigenvectors and 0.98 with tokens when this was written
    assert 0.5 < np.median(found / expected) < 2


def test_influence_is_what_a_sequence_loses_when_it_is_left_out():
    damping = 1.0
    head = made_head(n=40, m=5, d=3, damping=damping, steps=300)
    scores = sequence_scores(head, damping=damping)
    assert scores.stationarity < 1e-5 and not scores.notes
    weight = torch.from_numpy(head.weight)
    gaps = [float(sequence_loss(head, refitted(head, damping, without=i), i) - sequence_loss(head, weight, i)) for i in range(40)]
    assert spearmanr(scores.influence, gaps).statistic > 0.95
    assert 0.7 < np.median(scores.influence / np.array(gaps)) < 1.4


def test_a_longer_sequence_of_the_same_tokens_scores_the_same():
    head = made_head(n=6)
    rows = [np.arange(head.starts[i], head.starts[i + 1]) for i in range(6)]
    rows[2] = np.tile(rows[2], 3)
    order = np.concatenate(rows)
    longer = replace(
        head, features=head.features[order], labels=head.labels[order], starts=np.concatenate([[0], np.cumsum([len(r) for r in rows])])
    )
    for name in ("influence", "leverage", "gradient_norm"):
        expected = getattr(sequence_scores(head, damping=0.2), name)
        np.testing.assert_allclose(getattr(sequence_scores(longer, damping=0.2), name), expected, rtol=1e-9)


def test_blocks_order_and_inputs(monkeypatch):
    head = made_head(bias=True)
    before = head.features.copy()
    whole = sequence_scores(head, damping=0.2)
    monkeypatch.setattr(module, "block_length", lambda *_: 2)
    np.testing.assert_allclose(sequence_scores(head, damping=0.2).influence, whole.influence, rtol=1e-10)
    np.testing.assert_array_equal(head.features, before)


def test_variances_of_a_certain_token_do_not_cancel():
    logits = torch.tensor([[40.0, 0.0, 1.0]], dtype=torch.float64)
    spare = np.exp(-40.0) * (1 + np.e)
    np.testing.assert_allclose(token_variances(torch.softmax(logits, 1))[0].numpy(), [spare, np.exp(-40.0), np.exp(-39.0)], rtol=1e-12)


def test_damping_and_its_source():
    head = made_head()
    curvature = dense_curvatures(head).sum(0)
    mean = np.trace(curvature) / (4 * 3)  # (m − 1)d dimensions have curvature
    automatic, decay, none = sequence_scores(head), sequence_scores(head, weight_decay=0.01), sequence_scores(head, weight_decay=0.0)
    assert automatic.damping_used == pytest.approx(0.1 * mean, rel=1e-10) == none.damping_used
    assert automatic.damping_source.startswith("automatic: 0.1 × the mean eigenvalue") and "no weight decay" in none.damping_source
    assert decay.damping_used == pytest.approx(0.14) and "n=14, weight_decay=0.01" in decay.damping_source
    given = sequence_scores(head, damping=0.14, weight_decay=5.0)
    assert given.damping_source == "given" and np.array_equal(given.influence, decay.influence)
    assert (sequence_scores(head, damping=1e9).influence < 1e-6).all()


def test_stationarity_is_the_left_over_gradient():
    head = made_head()
    flat = gradients(head)
    total = flat.sum(0) + 0.2 * (head.weight - head.weight.mean(0))
    expected = np.linalg.norm(total) / np.sqrt((flat**2).sum((1, 2)).mean())
    assert sequence_scores(head, damping=0.2).stationarity == pytest.approx(expected, rel=1e-9)


def test_memory_decides_the_basis_and_refuses_with_the_number():
    head = made_head(m=9, d=2)
    small, large = (sequence_score_bytes(9, 2, basis) for basis in ("tokens", "eigenvectors"))
    tokens = sequence_scores(head, damping=0.2, max_memory=small)
    assert tokens.method == "ekfac-tokens" and any("vocabulary of 9 tokens" in note for note in tokens.notes)
    np.testing.assert_array_equal(tokens.influence, sequence_scores(head, damping=0.2, class_basis="tokens").influence)
    assert sequence_scores(head, max_memory=large).method == "ekfac"
    with pytest.raises(NotApplicable, match=r"EK-FAC of a head of 9 tokens × 2 features needs 1.15e-06 GB, more than the 1e-06 GB allowed"):
        sequence_scores(head, max_memory=1e3)
    with pytest.raises(NotApplicable, match=r"needs 5\.69e-06 GB"):
        sequence_scores(head, max_memory=2e3, class_basis="eigenvectors")
    assert 100e9 < sequence_score_bytes(50257, 768, "eigenvectors") < 150e9 and sequence_score_bytes(50257, 768, "tokens") < 3e9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"damping": 0.0}, "^damping must be a number > 0; got 0"),
        ({"damping": "much"}, "^damping must be a number > 0; got 'much'"),
        ({"class_basis": "words"}, "class_basis must be one of 'auto', 'eigenvectors', 'tokens'; got 'words'"),
    ],
)
def test_wrong_settings_get_one_sentence(settings, message):
    with pytest.raises(ns.InputError, match=message):
        sequence_scores(made_head(), **settings)


def test_a_head_without_curvature_asks_for_a_damping():
    head = replace(made_head(), features=np.zeros_like(made_head().features))
    with pytest.raises(NotApplicable, match="the output head has no curvature to take a damping λ from"):
        sequence_scores(head)
    assert sequence_scores(head, damping=1.0).influence.tolist() == [0.0] * 14


def test_short_and_long_sequences_take_the_same_way_over():
    """Residuals are turned before they are summed where that is cheaper; both orders give the same number."""
    head = made_head(n=10, m=6, d=5, seed=4)  # lengths of 2 … 8 on both sides of d
    lengths = np.diff(head.starts)
    assert (lengths < 5).any() and (lengths >= 5).any()
    wide = replace(head, features=np.c_[head.features, np.zeros((len(head.features), 7))], weight=np.c_[head.weight, np.zeros((6, 7))])
    a, b = (sequence_scores(part, damping=0.4, class_basis="eigenvectors") for part in (head, wide))
    np.testing.assert_allclose(a.influence, b.influence, **CLOSE)  # features of zero change nothing, but make every sequence short


def test_a_vocabulary_that_would_take_hours_goes_over_tokens(monkeypatch):
    head = made_head()
    assert sequence_scores(head, damping=0.3).method == "ekfac"
    monkeypatch.setattr(module, "MOST_FLOPS", 1.0)
    slow = sequence_scores(head, damping=0.3)
    assert slow.method == "ekfac-tokens" and "operations" in slow.notes[0]
    assert sequence_scores(head, damping=0.3, class_basis="eigenvectors").method == "ekfac"


def test_without_weight_decay_the_damping_is_said_to_be_automatic():
    scores = sequence_scores(made_head(), weight_decay=0.0)
    assert scores.damping_source.startswith("automatic: 0.1 × the mean eigenvalue") and "no weight decay" in scores.damping_source


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), "x"])
def test_a_wrong_weight_decay_is_refused(wrong):
    with pytest.raises(ns.InputError, match=r"^weight_decay must be"):
        sequence_scores(made_head(), weight_decay=wrong)


def test_a_head_that_is_sure_of_everything_has_no_automatic_damping():
    sure = made_head(scale=1e4)
    with pytest.raises(NotApplicable, match="no curvature to take a damping λ from"):
        sequence_scores(sure)
    assert np.isfinite(sequence_scores(sure, damping=1e-3).influence).all()
