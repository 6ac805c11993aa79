"""What one layer adds to the upper triangle of a tangent kernel, block by block.

A linear layer that runs at T positions of every record can add its inner products in two ways. Over
pairs of positions they cost n²T²(d_in + d_out) products and no gradient is ever formed. With the
gradients formed from their factors, some rows of the weight at a time, they cost nT·d_in·d_out to
form and n²·d_in·d_out to multiply. The cheaper one is taken: the first for short texts and wide
layers, the second for long texts.
"""

from torch import Tensor

from noshadow.blocks import blocks

ROWS = 1024
# Numbers in a block of pairs, or in a slice of gradients that are formed.
NUMBERS = 1 << 24


def add_linear(kernel: Tensor, inputs: Tensor, slopes: Tensor, *, bias: bool) -> None:
    """Add Σ_st (A_s·A'_t + 1)(Δ_s·Δ'_t) of every two records.

    Args:
        kernel: (nc, nc), changed in place above its diagonal blocks.
        inputs: (n, T, d_in) A. slopes: (n, T, c, d_out) Δ. bias: whether the 1 is there.
    """
    n, positions, c, d_out = slopes.shape
    d_in = inputs.shape[2]
    if positions == 1:
        _add_rows(kernel, inputs[:, 0], slopes[:, 0].flatten(0, 1), c, bias)
    elif n * positions**2 * (d_in + c * c * d_out) <= c * (positions + n * c) * d_in * d_out:
        _add_pairs(kernel, inputs, slopes, bias)
    else:
        _add_formed(kernel, inputs, slopes, bias)


def _add_rows(kernel: Tensor, inputs: Tensor, slopes: Tensor, columns: int, bias: bool) -> None:
    """Add (AAᵀ + 1) ∘ ΔΔᵀ of one row per record."""
    for start, stop in blocks(len(inputs), max(ROWS // columns, 1)):
        rows = slice(start * columns, stop * columns)
        inner = inputs[start:stop] @ inputs[start:].T
        inner += 1.0 if bias else 0.0
        product = slopes[rows] @ slopes[rows.start :].T
        shaped = product.view(stop - start, columns, len(inputs) - start, columns)
        shaped *= inner[:, None, :, None]
        kernel[rows, rows.start :] += product


def _add_pairs(kernel: Tensor, inputs: Tensor, slopes: Tensor, bias: bool) -> None:
    """Add the products over all pairs of positions of two records."""
    n, positions, c, d_out = slopes.shape
    side = max(int((NUMBERS / (positions * c) ** 2) ** 0.5), 1)
    for start, stop in blocks(n, side):
        mine = slopes[start:stop].reshape(-1, d_out)
        for low, high in blocks(n - start, side):
            others = slice(start + low, start + high)
            alike = inputs[start:stop].flatten(0, 1) @ inputs[others].flatten(0, 1).T + float(bias)
            along = (mine @ slopes[others].reshape(-1, d_out).T).view(stop - start, positions, c, high - low, positions, c)
            along *= alike.view(stop - start, positions, 1, high - low, positions, 1)
            kernel[start * c : stop * c, others.start * c : others.stop * c] += along.sum((1, 4)).flatten(2).flatten(0, 1)


def _add_formed(kernel: Tensor, inputs: Tensor, slopes: Tensor, bias: bool) -> None:
    """Add the products of gradients, formed for some rows of the weight at a time."""
    n, positions, c, d_out = slopes.shape
    for start, stop in blocks(d_out, max(NUMBERS // (n * c * inputs.shape[2]), 1)):
        # (n, c·rows, T) times (n, T, d_in): no position is ever held beside another.
        part = slopes[:, :, :, start:stop].reshape(n, positions, -1)
        add_gram(kernel, (part.mT @ inputs).reshape(n * c, -1))
    if bias:
        add_gram(kernel, slopes.sum(1).flatten(0, 1))


def add_gram(kernel: Tensor, gradients: Tensor) -> None:
    """Add GGᵀ."""
    for start, stop in blocks(len(gradients), ROWS):
        kernel[start:stop, start:].addmm_(gradients[start:stop], gradients[start:].T)
