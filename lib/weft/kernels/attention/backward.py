"""Attention backward: no score was kept, so each is computed again from its row's log-sum-exp.

Dao 2023, algorithm 2, in three passes: delta, what each row's gradients have in common; dq, with
the queries outside; dkdv, with the keys outside.
"""

from torch import Tensor

from weft.kernels.attention.delta import delta_kernel
from weft.kernels.attention.dkdv import dkdv_kernel
from weft.kernels.attention.dq import dq_kernel
from weft.kernels.attention.launch import Problem, in_rows, view
from weft.kernels.attention.tile import View


def backward(
    x: Problem, o_BTHV: Tensor, lse_BTH: Tensor, do_BTHV: Tensor, dlse_BTH: Tensor | None,
    wanted=(True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of q, k and v that are wanted, from those of o and of the log-sum-exp."""
    B, T, S, H, G, K, V = x.sizes
    rows = by_rows(x, o_BTHV, lse_BTH, do_BTHV, dlse_BTH)
    dq_BTHK = dk_BSGK = dv_BSGV = None
    if wanted[0]:
        tile, dq_BTHK = x.tile("dq"), x.q.new_empty(B, T, H, K)
        x.launch("dq", dq_kernel, x.programs("q", tile), tile, **rows, dq=view(dq_BTHK))
    if wanted[1] or wanted[2]:
        tile = x.tile("dkdv")
        dk_BSGK, dv_BSGV = x.k.new_empty(B, S, G, K), x.v.new_empty(B, S, G, V)
        results = {"dk": view(dk_BSGK), "dv": view(dv_BSGV)}
        x.launch("dkdv", dkdv_kernel, x.programs("k", tile), tile, **rows, **results)
    return dq_BTHK, dk_BSGK, dv_BSGV


def by_rows(
    x: Problem, o_BTHV: Tensor, lse_BTH: Tensor, do_BTHV: Tensor, dlse_BTH: Tensor | None
) -> dict[str, View]:
    """What the other two passes need of each row: "do", "lse", and "delta" by the first pass."""
    delta_BTH = x.per_row()
    if dlse_BTH is not None:
        dlse_BTH = x.per_row().copy_(dlse_BTH)
    rows = {"do": view(in_rows(do_BTHV)), "lse": view(lse_BTH), "delta": view(delta_BTH)}
    tile, given = x.tile("delta"), {"o": view(o_BTHV), "dlse": view(dlse_BTH)}
    x.launch("delta", delta_kernel, x.programs("q", tile), tile, **rows, **given)
    return rows
