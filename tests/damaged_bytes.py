"""Bytes of files, damaged at random."""


def flipped(rng, content):
    """A few bits or bytes changed."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(made))
        made[place] = made[place] ^ (1 << rng.randrange(8)) if rng.random() < 0.5 else rng.randrange(256)
    return bytes(made)


def truncated(rng, content):
    return content[: rng.randrange(len(content))]
