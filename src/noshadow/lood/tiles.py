"""A kernel matrix that is never held whole: tiles of its upper triangle, kept while memory lasts, made again after."""

from dataclasses import dataclass

import torch
from torch import Tensor

from noshadow.lood.inputs import Kernel, kernel_values

TILE_ROWS = 1024


@dataclass(frozen=True, eq=False)
class KernelTiles:
    """Upper-triangle tiles of K(x, x): x (n, …), the kernel, and those tiles that fit in memory, by (row, column) start."""

    x: Tensor
    kernel: Kernel
    kept: dict[tuple[int, int], Tensor]
    owner: str


def kernel_tiles(x: Tensor, kernel: Kernel, owner: str, *, max_bytes: float) -> KernelTiles:
    """Tiles of K(x, x), the first of them computed and kept until `max_bytes` are used."""
    tiles = KernelTiles(x, kernel, {}, owner)
    used = 0.0
    for row, column in _corners(len(x)):
        used += 8.0 * min(TILE_ROWS, len(x) - row) * min(TILE_ROWS, len(x) - column)
        if used > max_bytes:
            break
        tiles.kept[row, column] = _tile(tiles, row, column)
    return tiles


def tiles_product(tiles: KernelTiles, right: Tensor) -> Tensor:
    """K·right for right (n, m).

    Cost: 2n²m flops, and n²/2 kernel values less those kept.
    """
    # Vectors as rows: thin products run about twice as fast that way round.
    across = right.T.contiguous()
    out = torch.zeros_like(across)
    for row, column in _corners(len(tiles.x)):
        tile = tiles.kept.get((row, column))
        tile = _tile(tiles, row, column) if tile is None else tile
        rows, columns = slice(row, row + TILE_ROWS), slice(column, column + TILE_ROWS)
        out[:, rows] += across[:, columns] @ tile.T
        if row != column:
            out[:, columns] += across[:, rows] @ tile
    return out.T.contiguous()


def partial_cholesky(x: Tensor, kernel: Kernel, rank: int, owner: str) -> Tensor:
    """F (n, r), r ≤ rank, with 0 ⪯ FFᵀ ⪯ K(x, x): the pivoted Cholesky factor, stopped early.

    Cost: n·r kernel values, n·r² flops.
    """
    n = len(x)
    left = torch.cat([kernel_values(kernel, x[i : i + 64], x[i : i + 64], owner).diagonal() for i in range(0, n, 64)])
    largest = float(left.max())
    factor = x.new_zeros((n, min(rank, n)))
    for k in range(factor.shape[1]):
        pivot = int(left.argmax())
        if float(left[pivot]) <= 1e-10 * largest:
            return factor[:, :k]
        column = kernel_values(kernel, x[pivot : pivot + 1], x, owner)[0] - factor[:, :k] @ factor[pivot, :k]
        factor[:, k] = column / left[pivot].sqrt()
        left = left - factor[:, k] ** 2
    return factor


def _corners(n: int) -> list[tuple[int, int]]:
    starts = range(0, n, TILE_ROWS)
    return [(row, column) for row in starts for column in starts if column >= row]


def _tile(tiles: KernelTiles, row: int, column: int) -> Tensor:
    rows, columns = tiles.x[row : row + TILE_ROWS], tiles.x[column : column + TILE_ROWS]
    return kernel_values(tiles.kernel, rows, columns, tiles.owner)
