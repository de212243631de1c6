"""Attention backward: no score was kept, so each is computed again from its row's log-sum-exp.

Dao 2023, algorithm 2, in three passes: delta, what each row's gradients have in common; dq, with
the queries outside; dkdv, with the keys outside. dkdv runs once more where there are pairs that
are not seen: for tiles that something not finite has reached, and its programs end at once for
all others. It is apart because its registers are needed.
"""

import torch
import triton
from torch import Tensor

from weft.kernels.attention_dkdv import dkdv
from weft.kernels.attention_dq import delta, dq
from weft.kernels.attention_launch import Problem, in_rows, pointer


def backward(
    x: Problem, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor | None, wanted=(True, True, True)
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of q, k and v that are wanted, from do [B, T, H, V] and dlse [B, T, H]."""
    B, T, S, H, G, K, V = x.sizes
    do, shared, tile = in_rows(do), torch.empty_like(lse), x.tile("dq")
    given = x.inputs() | {"p_o": o, "p_lse": lse, "p_delta": shared, "TILE_Q": tile.q}
    given |= pointer("do", do, "d", "bth") | pointer("dlse", dlse, "l", "bth")
    x.launch("delta", delta, triton.cdiv(T, tile.q) * H * B, tile, **given)
    grad_q = grad_k = grad_v = None
    if wanted[0]:
        grad_q = x.q.new_empty(B, T, H, K)
        given |= {"TILE_K": tile.k, "EDGE": tile.edge}
        x.launch("dq", dq, triton.cdiv(T, tile.q) * H * B, tile, **given, p_dq=grad_q)
    if wanted[1] or wanted[2]:
        grad_k, grad_v, tile = x.k.new_empty(B, S, G, K), x.v.new_empty(B, S, G, V), x.tile("dkdv")
        given |= {"TILE_Q": tile.q, "TILE_K": tile.k, "EDGE": tile.edge}
        made = {"p_dk": grad_k, "p_dv": grad_v}
        programs = triton.cdiv(S, tile.k) * G * B
        x.launch("dkdv", dkdv, programs, tile, **given, **made, ODD=False)
        if x.causal or x.mask is not None:  # there are pairs that are not seen
            x.launch("dkdv_odd", dkdv, programs, tile, **given, **made, ODD=True)
    return grad_q, grad_k, grad_v
