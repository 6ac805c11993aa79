"""`TokenGains`: what a language model says of each token beside its base."""

from dataclasses import dataclass

import numpy as np

from noshadow.checks import Array


@dataclass(frozen=True, eq=False)
class TokenGains:
    """What a fine-tuned language model and its base say of every scored token.

    It holds the tokens themselves, so it is as sensitive as the training data. No audit and no
    folder holds one; a page does where it is handed over (`write_report(show_records=…)`).

    Attributes:
        tokens: (N,) token ids, sequence after sequence. texts: the same as texts; None without a
            tokenizer.
        gain: (N,) log p(x_t) − log q(x_t) in nats, p the model and q its base.
        log_probability: (N,) log p(x_t).
        starts: (n + 1,): those of sequence i are rows starts[i] … starts[i + 1] − 1.
    """

    tokens: Array
    texts: tuple[str, ...] | None
    gain: Array
    log_probability: Array
    starts: Array

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def loss(self) -> Array:
        """(n,) mean −log p of each sequence's tokens, the `loss` of an audit."""
        means: Array = -np.add.reduceat(self.log_probability, self.starts[:-1]) / np.diff(self.starts)
        return means

    @property
    def base_loss(self) -> Array:
        """(n,) mean −log q of each sequence's tokens, the `base_loss` of an audit."""
        means: Array = np.add.reduceat(self.gain, self.starts[:-1]) / np.diff(self.starts) + self.loss
        return means

    def carriers(self, sequence: int) -> Array:
        """Places of the tokens of a sequence that carry half of what the model gained on it.

        They are the fewest tokens whose gains make up half of all its rises, in order; none where
        no token became more probable.
        """
        gains = np.maximum(self.gain[self.starts[sequence] : self.starts[sequence + 1]], 0.0)
        order = np.argsort(-gains, kind="stable")
        total = np.cumsum(gains[order])
        if total[-1] <= 0:
            return np.empty(0, dtype=np.int64)
        return np.sort(order[: int(np.searchsorted(total, 0.5 * total[-1])) + 1])

    def words(self, sequence: int) -> list[str]:
        """The tokens of a sequence as texts, or their ids."""
        part = slice(int(self.starts[sequence]), int(self.starts[sequence + 1]))
        return list(self.texts[part]) if self.texts is not None else [str(token) for token in self.tokens[part].tolist()]
