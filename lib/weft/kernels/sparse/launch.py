"""From a call to launches: the lists of its squares, and the passes that go along them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from weft.kernels.attention import KernelTile, NoSecondDerivative, Problem, by_rows, padded, view
from weft.kernels.sparse.backward import dkdv_kernel, dq_kernel
from weft.kernels.sparse.forward import forward_kernel
from weft.kernels.sparse.lists import TileList, TileLists
from weft.kernels.sparse.rule import LayoutView, ListView, WindowView

TILES = {  # chip and widest head of dK and dV, where dense attention's tile would spill
    ("sm_90", 128): KernelTile(32, 128, 32, 8, 3),
    ("sm_90", 256): KernelTile(16, 64, 16, 8, 2),
    ("sm_100", 256): KernelTile(32, 64, 32, 8, 3, 255),
}
# Keys at an edge where a layout is read, by 8 warps: each pair of a thread has an address there.
EDGES = {"sm_80": 32, "sm_90": 32, "sm_100": 16}


class Sight(NamedTuple):
    """Who sees whom: the lists of squares of `unit` rows, and the mask of the partial ones."""

    lists: TileLists
    unit: int
    layout: LayoutView | None = None
    window: WindowView | None = None

    def given(self, listed: TileList) -> dict[str, object]:
        """What a kernel that goes along one of the lists is told."""
        return {
            "listed": list_view(listed), "layout": self.layout, "window": self.window,
            "UNIT": self.unit,
        }  # fmt: skip


def list_view(one: TileList) -> ListView:
    """A list for a kernel; along a dim of length 1 it is the same for all."""
    strides = [0 if one.bounds.shape[dim] == 1 else one.bounds.stride(dim) for dim in (0, 1)]
    return ListView(one.bounds, one.tiles, *strides)


class SparseAttention(torch.autograd.Function):
    """A forward and a backward pass along lists; no score is kept, as in dense attention."""

    @staticmethod
    def forward(ctx, q, k, v, x: Problem, sight: Sight, forward: Callable):
        o_BTHV, lse_BTH = forward(x, sight)
        ctx.save_for_backward(x.q, x.k, x.v, o_BTHV, lse_BTH)
        ctx.problem, ctx.sight = x._replace(q=None, k=None, v=None), sight
        return o_BTHV

    @staticmethod
    def backward(ctx, do_BTHV):
        q, k, v, o_BTHV, lse_BTH = ctx.saved_tensors
        with torch.no_grad():
            x = ctx.problem._replace(q=q, k=k, v=v)
            grads = gradients(x, ctx.sight, o_BTHV, lse_BTH, do_BTHV, ctx.needs_input_grad)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            once = NoSecondDerivative.apply
            grads = [None if one is None else once(one, q, k, v) for one in grads]
        return *grads, None, None, None


def along_lists(x: Problem, sight: Sight) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, T, H], -inf where a row sees nothing."""
    B, T, _, H, _, _, V = x.sizes
    tile, o_BTHV, lse_BTH = forward_tile(x, sight), x.q.new_empty(B, T, H, V), x.per_row()
    given = sight.given(sight.lists.rows) | {"o": view(o_BTHV), "lse": view(lse_BTH)}
    x.launch("forward", forward_kernel, x.programs("q", tile), tile, **given)
    return o_BTHV, lse_BTH


def gradients(
    x: Problem, sight: Sight, o_BTHV: Tensor, lse_BTH: Tensor, do_BTHV: Tensor, wanted=(True,) * 3
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Those of q, k and v that are wanted: dQ by rows, dK and dV by columns."""
    rows = by_rows(x, o_BTHV, lse_BTH, do_BTHV, None)
    dq_BTHK = dk_BSGK = dv_BSGV = None
    if wanted[0]:
        tile, dq_BTHK = x.tile("dq"), torch.empty_like(x.q, memory_format=torch.contiguous_format)
        given = sight.given(sight.lists.rows) | rows | {"dq": view(dq_BTHK)}
        x.launch("dq", dq_kernel, x.programs("q", tile), tile, **given)
    if wanted[1] or wanted[2]:
        tile = dkdv_tile(x)
        dk_BSGK, dv_BSGV = (
            torch.empty_like(one, memory_format=torch.contiguous_format) for one in (x.k, x.v)
        )
        given = sight.given(sight.lists.columns) | rows | {"dk": view(dk_BSGK), "dv": view(dv_BSGV)}
        x.launch("dkdv", dkdv_kernel, x.programs("k", tile), tile, **given)
    return dq_BTHK, dk_BSGK, dv_BSGV


def forward_tile(x: Problem, sight: Sight) -> KernelTile:
    """Dense attention's, with short edges where a layout is read."""
    tile = x.tile("forward")
    if sight.layout is None or x.target not in EDGES:
        return tile
    return tile._replace(edge=min(tile.edge, EDGES[x.target] * tile.warps // 8))


def dkdv_tile(x: Problem) -> KernelTile:
    """Dense attention's, but where a list needs registers that it does not."""
    width = max(padded(x.sizes.K), padded(x.sizes.V))
    half = x.q.element_size() == 2
    return TILES.get((x.target, width), x.tile("dkdv")) if half else x.tile("dkdv")


def attend(x: Problem, sight: Sight, forward: Callable = along_lists) -> Tensor:
    """Attention [B, T, H, V] to what is seen, differentiable in q, k and v."""
    return SparseAttention.apply(x.q, x.k, x.v, x, sight, forward)
