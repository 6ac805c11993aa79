"""What the output head of a language model sees where each scored token is predicted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import Array, NotApplicable, as_array
from noshadow.views.few_bits import in_few_bits
from noshadow.views.token_sequences import TokenSequences

PROBED = 64  # tokens of the first window whose logits are computed once more from the features
# of the largest logit, beyond two units in the last place of each: half-precision models round that
# far
SAME_HEAD = 1e-4


@dataclass(frozen=True, eq=False)
class TokenHead:
    """The output head of a language model, and its input at every scored token.

    Tokens stand sequence after sequence.

    Attributes:
        features: (N, d) inputs of the head where each scored token is predicted, float32 or
            float64.
        labels: (N,) int64, the tokens predicted there.
        starts: (n + 1,) int64: those of sequence i are rows starts[i] … starts[i + 1] − 1, at least
            one.
        weight: (m, d), the logits are weight·features + bias. bias: (m,), None for a head without
            one.
        tied: whether the weight is also the model's input embedding.
        residual: largest difference between these logits and the model's on some tokens, beyond
            what its precision rounds, over the largest logit.
    """

    features: Array
    labels: Array
    starts: Array
    weight: Array
    bias: Array | None
    tied: bool
    residual: float


@dataclass(eq=False)
class TokenStore:
    """A store of the head's inputs that is filled while the model runs.

    Once the model's output is found not to come from its head, `reason` is set and the rest is let
    go.

    Attributes:
        layer: the head. starts: as in TokenHead. places: row of each token of a sequence among its
            scored ones.
        seen: the head's last input, (b, length, d).
    """

    layer: nn.Linear
    starts: Array
    places: tuple[Array, ...]
    features: Array
    labels: Array
    tied: bool
    seen: list[Tensor] = field(default_factory=list)
    residual: float | None = None
    reason: str = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the head's inputs through a hook while the block runs."""

        def heard(_: nn.Module, inputs: Any, __: Any) -> None:
            self.seen[:] = [part for part in inputs[:1] if isinstance(part, Tensor)]

        handle = self.layer.register_forward_hook(heard)
        try:
            yield
        finally:
            handle.remove()
            self.seen.clear()

    def keep(self, row: int, sequence: int, start: int, places: Tensor, ids: Tensor, logits: Tensor) -> None:
        """Keep what predicted the tokens at `places` of one window.

        The window is the `row`-th of the batch that has just passed.

        Args:
            sequence, start: which sequence, and where the window begins in it. ids: the window's
                tokens. logits: (length, m).
        """
        if self.reason:
            return
        inputs = self.seen[0] if self.seen else None
        if inputs is None or inputs.ndim != 3 or inputs.shape[1] != len(logits) or inputs.shape[2] != self.layer.in_features:
            self._give_up("its output head does not run once for every token")
            return
        before = (places - 1).to(inputs.device)
        features = inputs[row, before]
        if self.residual is None:
            self._compare(features[:PROBED].cpu(), logits[before[:PROBED].to(logits.device)].cpu())
        rows = self.starts[sequence] + self.places[sequence][start + places.numpy()]
        if not self.reason:
            self.features[rows], self.labels[rows] = as_array(features, ""), ids[places].numpy()

    def _compare(self, features: Tensor, logits: Tensor) -> None:
        bias = None if self.layer.bias is None else self.layer.bias.cpu().double()
        ours = nn.functional.linear(features.double(), self.layer.weight.cpu().double(), bias)
        if ours.shape != logits.shape or not torch.isfinite(logits).all():
            self._give_up("its logits are not those of its output head")
            return
        largest = float(logits.abs().max())
        rounding = 2 * torch.finfo(self.layer.weight.dtype).eps * logits.abs()
        self.residual = apart = float(((ours - logits).abs() - rounding).clamp(min=0.0).max()) / largest if largest > 0 else 0.0
        if apart > SAME_HEAD:
            self._give_up(f"its logits are not those of its output head (they differ by a share of {apart:.2g} of the largest)")

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self.features, self.labels = np.empty((0, 0)), np.empty(0, dtype=np.int64)

    def found(self) -> TokenHead | NotApplicable:
        """What was kept, or why nothing is."""
        if self.reason:
            return NotApplicable(self.reason)
        weight, bias = self.layer.weight, self.layer.bias
        return TokenHead(
            features=self.features,
            labels=self.labels,
            starts=self.starts,
            weight=as_array(weight, ""),
            bias=None if bias is None else as_array(bias, ""),
            tied=self.tied,
            residual=self.residual or 0.0,
        )


def token_store(model: Any, sequences: TokenSequences, max_memory: float) -> TokenStore | NotApplicable:
    """Make an empty store for the scored tokens, or say why the model's head cannot be read.

    Args:
        max_memory: bytes the features may take.
    """
    layer = model.get_output_embeddings()
    if layer is None:
        return NotApplicable("the model names no output head (get_output_embeddings gives none)")
    if isinstance(layer, nn.Module) and in_few_bits(layer):
        return NotApplicable(f"the weights of the model's output head ({type(layer).__name__}) are stored in few bits")
    if not isinstance(layer, nn.Linear):
        return NotApplicable(f"the model's output head is a {type(layer).__name__}, not a plain Linear layer")
    scored = [int(counts.sum()) for counts in sequences.counts]
    dtype = np.float64 if layer.weight.dtype == torch.float64 else np.float32
    need = sum(scored) * layer.in_features * np.dtype(dtype).itemsize
    if need > max_memory:
        return NotApplicable(
            f"the head's inputs at {sum(scored):,} tokens × {layer.in_features:,} features take {need / 1e9:.3g} GB, "
            f"more than the {max_memory / 1e9:.3g} GB allowed"
        )
    embedding = model.get_input_embeddings()
    return TokenStore(
        layer=layer,
        starts=np.concatenate([[0], np.cumsum(scored)]).astype(np.int64),
        places=tuple(np.cumsum(counts) - 1 for counts in sequences.counts),
        features=np.empty((sum(scored), layer.in_features), dtype),
        labels=np.empty(sum(scored), dtype=np.int64),
        tied=embedding is not None and embedding.weight is layer.weight,
    )
