"""Images as small PNG files, written with the standard library alone."""

import base64
import struct
import zlib

import numpy as np

from noshadow.checks import Array, refuse, require_finite, require_squarable

LONGEST_SIDE = 96
_CHANNELS = (1, 3)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _COLOUR = 0, 2


def channels_last(images: Array, argument: str) -> Array:
    """Return (n, h, w) or (n, h, w, c) with c of 1 or 3, from either order of axes.

    Images are refused where the shape does not settle the order.
    """
    if images.ndim == 3:
        made = images
    else:
        first, last = images.shape[1] in _CHANNELS, images.shape[3] in _CHANNELS
        if first == last:
            rule = "have 1 or 3 channels in their second or their last axis, not in both"
            refuse(f"images in {argument}", rule, f"shape {images.shape}", "Convert them to (n, h, w, 3).")
        made = images if last else np.moveaxis(images, 1, 3)
    if 0 in made.shape[1:]:
        refuse(f"images in {argument}", "have at least one pixel", f"shape {images.shape}")
    if made.dtype.kind not in "biuf":
        refuse(f"images in {argument}", "be of bytes, integers or floats", f"dtype {made.dtype}")
    require_finite(made, f"images in {argument}")
    if made.dtype.kind == "f":
        require_squarable(made, f"images in {argument}")
    return made


def black_and_white(images: Array) -> tuple[float, float]:
    """Find the pixel values that become black and white.

    They are 0 and 255 for whole numbers in that range, and 0 and 1 for floats in that one.

    Anything else is stretched from the smallest to the largest value over all images, so that they
    stay comparable.
    """
    if images.dtype == np.uint8:
        return 0.0, 255.0
    low, high = float(images.min()), float(images.max())
    usual = 255.0 if images.dtype.kind in "iu" else 1.0
    return (0.0, usual) if low >= 0 and high <= usual else (low, high)


def thumbnail(image: Array, black: float, white: float) -> str:
    """Encode one image (h, w) or (h, w, c) as the Base64 of a PNG.

    No side is longer than 96 pixels: larger images are averaged over blocks.
    """
    levels = (image.astype(np.float64) - black) / ((white - black) or 1.0)
    pixels = np.round(255 * _reduced(levels)).astype(np.uint8)
    return base64.b64encode(_png(pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)).decode()


def _reduced(image: Array) -> Array:
    longest = max(image.shape[:2])
    if longest <= LONGEST_SIDE:
        return image
    for axis in (0, 1):
        size = image.shape[axis]
        edges = np.arange(max(1, round(size * LONGEST_SIDE / longest)))
        edges = edges * size // len(edges)
        counts = np.diff(np.append(edges, size)).reshape([-1 if k == axis else 1 for k in range(image.ndim)])
        image = np.add.reduceat(image, edges, axis=axis) / counts
    return image


def _png(pixels: Array) -> bytes:
    """PNG of bytes (h, w) or (h, w, 3): eight bits per channel, no filter."""
    height, width = pixels.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, _GREY if pixels.ndim == 2 else _COLOUR, 0, 0, 0)
    rows = np.zeros((height, 1 + pixels[0].size), dtype=np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
