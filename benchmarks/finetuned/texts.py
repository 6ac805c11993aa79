"""Texts: what the base is trained on, and the pools of sequences that fine-tunes see halves of.

The base sees the validation and test text of WikiText-2 (the training text is not at hand) and the first half of tiny Shakespeare.
Fine-tunes see what it has not: the second half of tiny Shakespeare, or reviews of SST-2. SST-2's training file has phrases of its
sentences as records of their own, which would be near-duplicates; its development and test files have whole sentences, and are taken.
"""

import gzip
import lzma

import numpy as np
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

VOCABULARY = 1024
LENGTH = 64
RECORDS = 640
POOLS = ("shakespeare", "sst2")
SEED = 20


def _halves_of_shakespeare(data):
    text = lzma.decompress((data / "text" / "tinyshakespeare.txt.xz").read_bytes()).decode()
    cut = text.index("\n\n", len(text) // 2)
    return text[:cut], text[cut:]


def base_texts(data):
    """What the base is trained on."""
    wiki = [lzma.decompress((data / "text" / f"wikitext2_{part}.txt.xz").read_bytes()).decode() for part in ("valid", "test")]
    return [*wiki, _halves_of_shakespeare(data)[0]]


def tokenizer_of(data, work):
    """A byte-pair tokenizer that was made on the base's texts alone."""
    path = work / "tokenizer.json"
    if not path.exists():
        made = ByteLevelBPETokenizer()
        made.train_from_iterator([line for text in base_texts(data) for line in text.splitlines(keepends=True)], VOCABULARY)
        made.save(str(path))
    return PreTrainedTokenizerFast(tokenizer_file=str(path))


def pool(name, data, tokenizer):
    """(RECORDS, LENGTH) token ids of one pool, a random choice in the order of the text."""
    if name == "shakespeare":
        ids = np.array(tokenizer.encode(_halves_of_shakespeare(data)[1]))
        pieces = ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)
    else:
        pieces = _joined(_reviews(data), tokenizer)
    chosen = np.random.default_rng(SEED).permutation(len(pieces))[:RECORDS]
    assert len(chosen) == RECORDS
    return pieces[np.sort(chosen)]


def _reviews(data):
    files = [gzip.decompress((data / "sst2" / f"{part}.tsv.gz").read_bytes()).decode() for part in ("test_labeled", "dev")]
    return [line.rpartition("\t")[0].strip() for text in files for line in text.splitlines()[1:]]


def _joined(reviews, tokenizer):
    """Reviews joined until they fill a sequence; what is over of the last one is in no sequence."""
    pieces, held = [], []
    for review in reviews:
        held += tokenizer.encode(review + "\n")
        if len(held) >= LENGTH:
            pieces.append(held[:LENGTH])
            held = []
    return np.array(pieces)
