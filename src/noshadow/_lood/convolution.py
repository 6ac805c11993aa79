"""Convolutional network kernels without pooling.

The readout of a flattened network meets each position with weights of its own, so only covariances of two records *at the same
position* enter the kernel: (h, w) numbers a pair instead of (h·w)². Stride 1; zero padding keeps the image's shape. A filter of even
size reaches one pixel further down and right than up and left (f = 2: the pixel itself, its right and lower neighbours).
"""

import torch
from torch import Tensor

from noshadow._lood.activations import Activation
from noshadow._lood.recursion import Network
from noshadow.checks import refuse, require_whole


def image_sizes(image_shape: object, owner: str) -> tuple[int, int, int]:
    """(channels, height, width), checked."""
    if image_shape is None:
        refuse(owner, "image_shape", "be given as (channels, height, width) for architecture='conv'", "None")
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        refuse(owner, "image_shape", "be (channels, height, width)", repr(image_shape))
    channels, height, width = (require_whole(size, owner, "image_shape", low=1) for size in image_shape)
    return channels, height, width


def as_images(x: Tensor, shape: tuple[int, int, int], owner: str, argument: str) -> Tensor:
    """Records (n, c, h, w) from rows of c·h·w numbers or images in that order; other layouts are refused, not guessed."""
    channels, height, width = shape
    layouts = [shape, (channels * height * width,)] + ([(height, width)] if channels == 1 else [])
    if tuple(x.shape[1:]) not in layouts:
        hint = "Channels come first: move the axes of images stored as (height, width, channels)."
        refuse(owner, argument, f"have records of image_shape {shape}, or rows of {channels * height * width}", f"{tuple(x.shape)}", hint)
    return x.reshape(len(x), *shape)


def convolutional_network(
    activation: Activation, depth: int, weight_variance: float, bias_variance: float, *, filter_size: int, shape: tuple[int, int, int]
) -> Network:
    """`depth` convolutions, each before a nonlinearity, and a readout of all positions."""
    channels, height, width = shape

    def products(rows: Tensor, columns: Tensor) -> Tensor:
        return rows.permute(2, 3, 0, 1) @ columns.permute(2, 3, 1, 0) / channels  # (h, w, i, j)

    def squares(images: Tensor) -> Tensor:
        return torch.einsum("nchw,nchw->hwn", images, images) / channels

    def patch_mean(covariance: Tensor) -> Tensor:
        return _patch_sum(_patch_sum(covariance, 0, filter_size), 1, filter_size) / filter_size**2

    def image_mean(covariance: Tensor) -> Tensor:
        return covariance.mean((0, 1))

    aggregations = (*[patch_mean] * depth, image_mean)
    return Network(activation, weight_variance, bias_variance, products, squares, aggregations, height * width)


def _patch_sum(covariance: Tensor, axis: int, filter_size: int) -> Tensor:
    """Sums over windows along one axis, what lies outside counted as zero."""
    before, length = (filter_size - 1) // 2, covariance.shape[axis]
    total = covariance.clone()
    for offset in range(-before, filter_size - before):
        if offset and abs(offset) < length:
            kept = length - abs(offset)
            total.narrow(axis, max(-offset, 0), kept).add_(covariance.narrow(axis, max(offset, 0), kept))
    return total
