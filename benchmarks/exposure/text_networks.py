"""Networks over numbers of words or letters, for calibration setups that resemble the judged encoder."""

import torch
from torch import nn


class WordBag(nn.Module):
    """The mean of word vectors, then dense ReLU layers; no order of words."""

    def __init__(self, words, outputs, width, hidden):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.dense = nn.Sequential(nn.Linear(width, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x):
        """(b, length) numbers, 0 = padding → (b, outputs) logits."""
        numbers = x.long()
        count = (numbers > 0).sum(1, keepdim=True).clamp(min=1)
        return self.head(self.dense(self.words(numbers).sum(1) / count))


class LetterWindow(nn.Module):
    """Vectors of the letters of a window side by side, then dense ReLU layers."""

    def __init__(self, letters, length, outputs, width, hidden):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.dense = nn.Sequential(nn.Linear(length * width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x):
        """(b, length) numbers → (b, outputs) logits."""
        return self.head(self.dense(torch.flatten(self.letters(x.long()), 1)))
