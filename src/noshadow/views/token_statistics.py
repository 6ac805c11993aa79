"""What a language model says of every scored token: kept while the model runs, token by token."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow.checks import Array
from noshadow.views.token_sequences import TokenSequences

NUMBERS_AT_ONCE = 2**22  # of the float64 copy whose log-softmax is taken


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """What a model says of each scored token, sequence after sequence.

    Attributes:
        log_probability: (N,) float64, log p(x_t | the tokens before it), nats.
        is_first: (N,) bool, whether no other token is more probable there.
        standing: (N,) float64, (log p(x_t) − μ_t)/σ_t with the mean μ_t and standard deviation σ_t
            of log p(z) over z ~ p; 0 where σ_t = 0, as a model is then sure of the token.
        starts: (n + 1,) int64: those of sequence i are rows starts[i] … starts[i + 1] − 1.
    """

    log_probability: Array
    is_first: Array
    standing: Array
    starts: Array

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(eq=False)
class StatisticsStore:
    """An empty TokenStatistics that is filled window by window, in any order."""

    found: TokenStatistics
    places: tuple[Array, ...]

    def keep(self, sequence: int, start: int, places: Tensor, told: tuple[Array, Array, Array]) -> None:
        """Keep what the model said at `places` of the window that begins at `start`."""
        rows = self.found.starts[sequence] + self.places[sequence][start + places.numpy()]
        for held, values in zip((self.found.log_probability, self.found.is_first, self.found.standing), told, strict=True):
            held[rows] = values


def statistics_store(sequences: TokenSequences) -> StatisticsStore:
    """A store with room for the scored tokens of these sequences: 17 bytes each."""
    scored = [int(counts.sum()) for counts in sequences.counts]
    starts = np.concatenate([[0], np.cumsum(scored)]).astype(np.int64)
    found = TokenStatistics(np.empty(starts[-1]), np.empty(starts[-1], dtype=bool), np.empty(starts[-1]), starts)
    return StatisticsStore(found, tuple(np.cumsum(counts) - 1 for counts in sequences.counts))


def negative_log_likelihood(
    logits: Tensor, places: Tensor, ids: Tensor, *, statistics: bool
) -> tuple[float, tuple[Array, Array, Array] | None]:
    """Σ −log p of the tokens at `places`, each from the logits one place before it.

    With `statistics` also each token's log p, whether it comes first, and its standing, float64
    from the model's own logits in blocks of at most NUMBERS_AT_ONCE numbers.
    """
    # Apple's GPUs have no float64
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    total = 0.0
    told: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in torch.split(places, max(NUMBERS_AT_ONCE // logits.shape[1], 1)):
        values = logits[(part - 1).to(logits.device)].to(wide)
        own = values.gather(1, ids[part].to(logits.device)[:, None])[:, 0]
        loss = values.logsumexp(1) - own
        total += float(loss.sum())
        if statistics:
            told.append((-loss, own >= values.amax(1), _standing(values, -loss)))
    if not statistics:
        return total, None
    one, first, standing = (torch.cat(column).cpu().numpy() for column in zip(*told, strict=True))
    return total, (one, first, standing)


def _standing(values: Tensor, own: Tensor) -> Tensor:
    """(log p(x_t) − μ_t)/σ_t; tokens that the model rules out (p = 0) add nothing to either."""
    logs = torch.log_softmax(values, 1)
    share = logs.exp()
    logs = torch.where(share > 0, logs, torch.zeros_like(logs))
    mean = (share * logs).sum(1)
    variance = (share * (logs - mean[:, None]).square()).sum(1)
    return torch.where(variance > 0, (own - mean) / variance.sqrt(), torch.zeros_like(own))
