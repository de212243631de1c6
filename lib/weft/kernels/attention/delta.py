"""Attention backward, first pass: what the gradients of a row of scores have in common.

The softmax's derivative takes the row's mean out of what flows back: dS = P * (dP - delta), with
delta = sum(P * dP), which is sum(dO * O), a sum over the width of a head instead of over all keys.
Dao et al. 2022, appendix B.2.
"""

import triton
import triton.language as tl

from weft.kernels.attention.tile import head, load_rows, load_tile, program, store_rows


@triton.jit
def delta_kernel(o, do, dlse, delta, T, H, V: tl.constexpr, TILE_Q: tl.constexpr):
    """For TILE_Q rows of one head: the sum of O * dO, less the gradient of the log-sum-exp.

    What comes back through the log-sum-exp is P * dlse, so it can be taken off here: the passes
    for dQ, dK and dV need not know of it.
    """
    i_q, i_h, i_b = program(tl.cdiv(T, TILE_Q), H, False)
    first = (i_q * TILE_Q).to(tl.int32)
    o_row = tl.arange(0, TILE_Q)
    b_o = load_tile(head(o, i_b, i_h), first, o_row, T, V, True).to(tl.float32)
    b_do = load_tile(head(do, i_b, i_h), first, o_row, T, V, True).to(tl.float32)
    b_delta = tl.sum(b_o * b_do, 1)
    if dlse is not None:
        b_delta -= load_rows(head(dlse, i_b, i_h), first, o_row, T, 0.0)
    store_rows(head(delta, i_b, i_h), first, b_delta, o_row, T)
