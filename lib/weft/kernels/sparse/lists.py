"""Which tiles a kernel goes through: lists by rows and by columns, made from what is seen.

A score matrix is cut into squares of UNIT queries and keys. A square is *full* where every pair in
it counts, and needs no mask; *partial* where some do. The rest is in no list and costs nothing.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from weft.kernels.attention import INTERPRETER

UNIT = 128  # queries, and keys, of a square
SMALL_UNIT = 32  # in the interpreter
KEPT = 64  # lists of windows that are kept for the next call


class Squares(NamedTuple):
    """What of a score matrix is seen, by squares: [B or 1, H or 1, rows, columns] in bool."""

    touched: Tensor
    full: Tensor


class TileList(NamedTuple):
    """For each row of squares the columns that it goes through, full ones first: CSR.

    bounds [B or 1, H or 1, rows, 3]: where in `tiles` a row's full squares begin, where its
    partial ones do, and where they end. tiles [squares in all lists].
    """

    bounds: Tensor
    tiles: Tensor


class TileLists(NamedTuple):
    """The same squares twice: for each row its columns, for each column its rows."""

    rows: TileList
    columns: TileList


def unit(target: str) -> int:
    """Queries and keys of a square; every tuned tile divides it."""
    return SMALL_UNIT if target == INTERPRETER else UNIT


def lists(squares: Squares) -> TileLists:
    """Both lists of what is seen; on a GPU the host waits for their length."""
    return TileLists(listed(squares), listed(Squares(*(x.mT for x in squares))))


def listed(squares: Squares) -> TileList:
    """The columns of each row, those of full squares before those of partial ones."""
    touched, full = squares
    order = torch.where(full, 0, 2 - touched.int()).argsort(dim=-1, stable=True)
    count = touched.sum(-1)
    end = count.flatten().cumsum(0).view_as(count)
    first = end - count
    bounds = torch.stack((first, first + full.sum(-1), end), -1).int()
    inside = torch.arange(order.shape[-1], device=order.device) < count.unsqueeze(-1)
    return TileList(bounds, order[inside].int())


def seen_by_window(
    T: int, unit: int, reach: int, dilation: int, causal: bool, seen_by_all: Tensor | None
) -> Squares:
    """The squares of a window: distances up to `reach`, in steps of `dilation`, and global keys.

    seen_by_all [B, T] in bool: keys that every query sees, later ones too unless causal.
    """
    device = torch.device("cpu") if seen_by_all is None else seen_by_all.device
    first = torch.arange(0, T, unit, device=device)
    last = (first + unit).clamp(max=T) - 1
    # The distances i - j in a square lie between these two.
    nearest = first.unsqueeze(1) - last
    furthest = last.unsqueeze(1) - first
    low = 0 if causal else -reach
    least, most = nearest.clamp(min=low), furthest.clamp(max=reach)
    step = most.div(dilation, rounding_mode="floor") * dilation  # the last one up to `most`
    touched = ((least <= most) & (step >= least))[None, None]
    whole = (first + unit <= T) & torch.tensor(dilation == 1, device=device)
    full = ((nearest >= low) & (furthest <= reach) & whole)[None, None]
    if seen_by_all is not None:
        at = torch.where(seen_by_all, torch.arange(T, device=device), T)
        padding = len(first) * unit - T
        at = torch.nn.functional.pad(at, (0, padding), value=T).unflatten(1, (-1, unit))
        earliest = at.amin(-1)[:, None, None, :]  # of the global keys in a column of squares
        touched = touched | (earliest <= (last.unsqueeze(1) if causal else T - 1))
    return Squares(touched, full & touched)


def seen_by_layout(T: int, S: int, unit: int, layout: Tensor, block: int, causal: bool) -> Squares:
    """The squares of a layout [H or 1, T / block, S / block]: blocks need not be squares.

    How many of a square's blocks are seen comes from sums of the layout from its corner on.
    """
    sums = layout.int().cumsum(-1, dtype=torch.int32).cumsum(-2, dtype=torch.int32)
    sums = torch.nn.functional.pad(sums, (1, 0, 1, 0))
    ends = []
    for length in (T, S):
        first = torch.arange(0, length, unit, device=layout.device)
        last = (first + unit).clamp(max=length) - 1
        ends.append((first // block, last // block + 1))
    (top, bottom), (left, right) = ends
    count = 0
    for rows, sign in ((bottom, 1), (top, -1)):
        count = count + sign * (sums[:, rows][:, :, right] - sums[:, rows][:, :, left])
    blocks = (bottom - top).unsqueeze(1) * (right - left)
    touched, full = count > 0, count == blocks
    first_q = torch.arange(0, T, unit, device=layout.device).unsqueeze(1)
    first_k = torch.arange(0, S, unit, device=layout.device)
    full &= first_k + unit <= S
    if causal:
        last_q = (first_q + unit).clamp(max=T) - 1
        touched &= first_k <= last_q + S - T
        full &= first_k + unit - 1 <= first_q + S - T
    return Squares(touched[None], full[None])


@lru_cache(KEPT)
def window_lists(
    T: int, unit: int, reach: int, dilation: int, causal: bool, device: torch.device
) -> TileLists:
    """The lists of a window without global tokens: from numbers alone, and kept."""
    made = lists(seen_by_window(T, unit, reach, dilation, causal, None))
    return TileLists(*(TileList(*(x.to(device) for x in one)) for one in made))
