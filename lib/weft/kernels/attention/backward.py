"""Attention backward: no score was kept, so each is computed again from its row's log-sum-exp.

Dao 2023, algorithm 2, in three passes: delta, what each row's gradients have in common; dq, with
the queries outside; dkdv, with the keys outside.
"""

import torch
import triton
from torch import Tensor

from weft.kernels.attention.dkdv import dkdv
from weft.kernels.attention.dq import delta, dq
from weft.kernels.attention.launch import Problem, in_rows, pointer
from weft.kernels.attention.odd import dkdv_odd, dq_odd


def backward(
    x: Problem, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor | None, wanted=(True, True, True)
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of q, k and v that are wanted, from do [B, T, H, V] and dlse [B, T, H]."""
    B, T, S, H, G, K, V = x.sizes
    do, shared, tile = in_rows(do), torch.empty_like(lse), x.tile("delta")
    given = pointer("do", do, "d", "bth") | {"p_lse": lse, "p_delta": shared}
    given_o = x.inputs() | {"p_o": o} | pointer("dlse", dlse, "l", "bth")
    x.launch("delta", delta, triton.cdiv(T, tile.q) * H * B, tile, **given, **given_o)
    grad_q = grad_k = grad_v = None
    if wanted[0]:
        grad_q = x.q.new_empty(B, T, H, K)
        x.launch_mended("dq", dq, dq_odd, "q", **given, p_dq=grad_q)
    if wanted[1] or wanted[2]:
        grad_k, grad_v = x.k.new_empty(B, S, G, K), x.v.new_empty(B, S, G, V)
        x.launch_mended("dkdv", dkdv, dkdv_odd, "k", **given, p_dk=grad_k, p_dv=grad_v)
    return grad_q, grad_k, grad_v
