"""A kernel matrix that is never held whole.

Tiles of its upper triangle are kept while memory lasts; the others are made again when needed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from noshadow._lood.inputs import Kernel, kernel_values

TILE_ROWS = 1024
_PIVOTS = 16


@dataclass(frozen=True, eq=False)
class KernelTiles:
    """Upper-triangle tiles of K(x, x).

    It holds x (n, …), the kernel, and the tiles that fit in memory, by (row, column) start.
    """

    x: Tensor
    kernel: Kernel
    kept: dict[tuple[int, int], Tensor]


def kernel_tiles(x: Tensor, kernel: Kernel, *, max_bytes: float) -> KernelTiles:
    """Tiles of K(x, x), the first of them computed and kept until `max_bytes` are used."""
    tiles = KernelTiles(x, kernel, {})
    used = 0.0
    for row, column in _corners(len(x)):
        used += 8.0 * min(TILE_ROWS, len(x) - row) * min(TILE_ROWS, len(x) - column)
        if used > max_bytes:
            break
        tiles.kept[row, column] = _tile(tiles, row, column)
    return tiles


def tiles_product(tiles: KernelTiles, vectors: Tensor) -> Tensor:
    """V·K for vectors as rows V (m, n): thin products run about twice as fast that way round.

    Cost: 2n²m flops, and n²/2 kernel values less those kept.
    """
    out = torch.zeros_like(vectors)
    for row, column in _corners(len(tiles.x)):
        tile = tiles.kept.get((row, column))
        tile = _tile(tiles, row, column) if tile is None else tile
        rows, columns = slice(row, row + TILE_ROWS), slice(column, column + TILE_ROWS)
        out[:, rows] += vectors[:, columns] @ tile.T
        if row != column:
            out[:, columns] += vectors[:, rows] @ tile
    return out


def kernel_diagonal(x: Tensor, kernel: Kernel) -> Tensor:
    """K(x, x) of every record with itself (n,), from small blocks: 64·n kernel values."""
    return torch.cat([kernel_values(kernel, part, part).diagonal() for part in torch.split(x, 64)])


def partial_cholesky(x: Tensor, kernel: Kernel, rank: int) -> Tensor:
    """F (n, r), r ≤ rank, with 0 ⪯ FFᵀ ⪯ K(x, x): the pivoted Cholesky factor, stopped early.

    LAPACK's pivoted factorisation needs the whole matrix; this one asks the kernel for r of its n
    columns.

    Cost: n·r kernel values, n·r² flops.
    """
    left = kernel_diagonal(x, kernel)
    floor = 1e-10 * float(left.max())
    factor, done = x.new_zeros((min(rank, len(x)), len(x))), 0
    while done < len(factor):
        # Several pivots share one kernel call; those that the ones before them explain wait for the
        # next.
        entry, pivots = left.topk(min(_PIVOTS, len(factor) - done))
        if float(entry[0]) <= floor:
            break
        columns = kernel_values(kernel, x[pivots], x) - factor[:done, pivots].T @ factor[:done]
        start = done
        for pivot, column, before in zip(pivots.tolist(), columns, entry.tolist(), strict=True):
            rest = column - factor[start:done, pivot] @ factor[start:done]
            if float(rest[pivot]) <= max(floor, before / 2):
                continue
            factor[done] = rest / rest[pivot].sqrt()
            left = (left - factor[done] ** 2).clamp(min=0)
            done += 1
    return factor[:done].T


def _corners(n: int) -> list[tuple[int, int]]:
    starts = range(0, n, TILE_ROWS)
    return [(row, column) for row in starts for column in starts if column >= row]


def _tile(tiles: KernelTiles, row: int, column: int) -> Tensor:
    rows, columns = tiles.x[row : row + TILE_ROWS], tiles.x[column : column + TILE_ROWS]
    return kernel_values(tiles.kernel, rows, columns)
