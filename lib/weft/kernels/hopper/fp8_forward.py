"""Version 4 with factors of 8 bits: twice the products per second, and scales to carry along.

Shah et al. 2024, section 3.3. Every tile of Q, K and V has its own scale (block quantisation). The
scales of Q and K go into that of the scores. The output is kept in units of the scale of the
values that were added last, and changes units where it is rescaled anyway.

Two things are asked of the layout. Products of 8 bits want both factors with the contraction
dimension running fastest, so V comes transposed, [B, G, K, S]. And scores leave a product with
columns 0 1 8 9 of each 16 in a thread, where the next wants its A operand in columns 0 1 2 3;
instead of moving probabilities between threads, V's keys come in that order (`fp8.KEY_ORDER`).

Probabilities are times 2^LIFT, which a softmax does not mind: e4m3 ends at 448, and its small
numbers are coarse.

The sums are not quite fp32. Hopper's tensor cores align the addends of an 8-bit product to the
largest of them and keep about 14 bits (DeepSeek-V3 2024, section 3.3.2), and here O stays in
their accumulator for the whole length of the sequence. `ref.hopper.attention_fp8` can do likewise.

Barriers: those of `v3_pingpong`.
"""

from typing import NamedTuple

from weft.kernels.gluon import (  # fmt: skip
    arrive,
    barriers,
    gl,
    jit,
    register_a,
    scores,
    wait,
    wgmma,
    wgmma_wait,
    workers,
)
from weft.kernels.hopper.ring import (  # fmt: skip
    Ring,
    buffer,
    fill,
    ready,
    release,
    ring,
    stage_of,
    tile,
    wait_full,
)
from weft.kernels.hopper.tile import (  # fmt: skip
    SIZES,
    Lengths,
    as_column,
    mask,
    softmax,
    work_count,
    work_item,
)
from weft.kernels.hopper.v2_specialized import Output, begin_item, load_queries, write
from weft.kernels.hopper.v3_pingpong import pass_turn, wait_turn

LIFT = gl.constexpr(8)


class Fp8Shared(NamedTuple):
    """As `v2_specialized.ForwardShared`, and a place for O, which is wider than Q."""

    q: Ring
    k: Ring
    v: Ring
    turns: gl.shared_memory_descriptor
    o_buf: gl.shared_memory_descriptor


class Scales(NamedTuple):
    """Where the scales of the tiles of Q, K and V are."""

    p_q: gl.tensor
    p_k: gl.tensor
    p_v: gl.tensor


@jit(do_not_specialize=SIZES)
def forward(
    q_desc, k_desc, v_desc, o_desc, p_lse, p_q, p_k, p_v, T, S, H, R, p_work, scale,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """O and its log-sum-exp from e4m3 tensors and their scales p_q, p_k, p_v, one to a tile."""
    q = ring(q_desc, 2, 1)
    k = ring(k_desc, STAGES, 2)
    v = ring(v_desc, STAGES, 2)
    shared = Fp8Shared(q, k, v, barriers(2, 1), buffer(o_desc, 2))
    lengths = Lengths(T, S, H, R, p_work)
    out = Output(o_desc, p_lse, scale)
    scales = Scales(p_q, p_k, p_v)
    descs = (q_desc, k_desc, v_desc)
    workers(
        [
            (consumer, (out, scales, shared, lengths, CAUSAL, 0)),
            (consumer, (out, scales, shared, lengths, CAUSAL, 1)),
            (producer, (descs, shared, lengths, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )


@jit
def producer(descs, shared, lengths, CAUSAL: gl.constexpr):
    """The loader of `v2_specialized`, with V's dims in another order."""
    q_desc, k_desc, v_desc = descs
    q, k, v, turns, o_buf = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    count = 0
    for n in range(work_count(lengths.p_work)):
        item = work_item(lengths, n, CAUSAL, 2 * ROWS, TILE_K)
        load_keys(k_desc, v_desc, k, v, item, item.tiles - 1, lengths.R, count)
        count += 1
        load_queries(q_desc, q, item, n)
        for i_k in range(item.tiles - 2, -1, -1):
            load_keys(k_desc, v_desc, k, v, item, i_k, lengths.R, count)
            count += 1


@jit
def load_keys(k_desc, v_desc, k, v, item, i_k, R, count):
    """`v2_specialized.load_keys`, V transposed."""
    TILE_K: gl.constexpr = k.buf.shape[2]
    i_g = item.i_h // R
    fill(k, k_desc, [item.i_b, i_k * TILE_K, i_g, 0], count)
    fill(v, v_desc, [item.i_b, i_g, 0, i_k * TILE_K], count)


@jit
def consumer(out, scales, shared, lengths, CAUSAL: gl.constexpr, W: gl.constexpr):
    """Warpgroup W: the order of `v4_overlapped`, and the scale of each tile."""
    q, k, v, turns, o_buf = shared
    T, S, H, R, p_work = lengths
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K, 8)
    O_LAYOUT: gl.constexpr = scores(4, q.buf.shape[4], 8)
    count = 0
    turn = 0
    for n in range(work_count(p_work)):
        item, b_o, b_max, b_sum, o_last = begin_item(q, k, lengths, n, CAUSAL, 8, W)
        i_q = item.first // (2 * ROWS)
        i_kv = (item.i_b * (H // R) + item.i_h // R) * gl.cdiv(S, TILE_K)
        i_k = i_kv + item.tiles - 1
        q_scale = gl.load(scales.p_q + (item.i_b * H + item.i_h) * gl.cdiv(T, 2 * ROWS) + i_q)
        q_scale = q_scale * out.scale
        v_scale = gl.load(scales.p_v + i_k)
        s_scale = gl.load(scales.p_k + i_k) * q_scale
        b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
        wait(q.full.index(W), n & 1)
        b_k = ready(k, count)
        b_s = wgmma(tile(q, W), b_k.permute((1, 0)), b_s, use_acc=False, is_async=True)
        b_s = wgmma_wait(0, deps=(b_s,))
        release(k, count)
        b_s = mask(b_s, o_last, item.tiles - 1, S_LAYOUT)
        b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, s_scale, LIFT)
        wait_full(k, count + 1, item.tiles > 1)
        for i_k in range(item.tiles - 2, item.full - 1, -1):
            b_o, b_p, b_max, b_sum, v_scale = pair(
                b_o, b_p, b_max, b_sum, o_last, shared, count, turn, i_k,
                scales, i_kv + i_k, q_scale, v_scale, True, W,
            )  # fmt: skip
            count += 1
            turn += 1
        for i_k in range(gl.minimum(item.tiles - 1, item.full) - 1, -1, -1):
            b_o, b_p, b_max, b_sum, v_scale = pair(
                b_o, b_p, b_max, b_sum, o_last, shared, count, turn, i_k,
                scales, i_kv + i_k, q_scale, v_scale, False, W,
            )  # fmt: skip
            count += 1
            turn += 1
        b_v = ready_values(v, count)
        b_o = wgmma(probabilities(b_p, O_LAYOUT), b_v, b_o, is_async=True)
        b_o = wgmma_wait(0, deps=(b_o,))
        release(v, count)
        count += 1
        write(out, o_buf, b_o * v_scale, b_max - LIFT, b_sum, item, lengths, O_LAYOUT, W)
        arrive(q.empty.index(W))


@jit
def pair(
    b_o, b_p, b_max, b_sum, o_last, shared, count, turn, i_k,
    scales, i_scale, q_scale, v_scale, MASKED: gl.constexpr, W: gl.constexpr,
):  # fmt: skip
    """`v4_overlapped.pair`, and the scales of the tile to come, loaded early.

    The A operand is not among the last wait's deps, as it is there: Triton 3.7 knows no
    register of 8-bit numbers in that place. The assembler keeps it until the wait.
    """
    q, k, v, turns, o_buf = shared
    ROWS: gl.constexpr = q.buf.shape[2]
    TILE_K: gl.constexpr = k.buf.shape[2]
    S_LAYOUT: gl.constexpr = scores(4, TILE_K, 8)
    O_LAYOUT: gl.constexpr = scores(4, q.buf.shape[4], 8)
    s_scale = gl.load(scales.p_k + i_scale) * q_scale
    v_next = gl.load(scales.p_v + i_scale)
    b_a = probabilities(b_p, O_LAYOUT)
    b_s = gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT)
    b_k = tile(k, count + 1)
    wait_turn(turns, turn, W)
    b_s = wgmma(tile(q, W), b_k.permute((1, 0)), b_s, use_acc=False, is_async=True)
    b_v = ready_values(v, count)
    b_o = wgmma(b_a, b_v, b_o, is_async=True)
    pass_turn(turns, W)
    b_s = wgmma_wait(1, deps=(b_s,))
    release(k, count + 1)
    if MASKED:
        b_s = mask(b_s, o_last, i_k, S_LAYOUT)
    b_p, b_max, b_sum, b_shrink = softmax(b_s, b_max, b_sum, s_scale, LIFT)
    wait_full(k, count + 2, i_k > 0)
    b_o = wgmma_wait(0, deps=(b_o,))
    release(v, count)
    b_o = b_o * as_column(b_shrink * (v_scale / v_next), O_LAYOUT)
    return b_o, b_p, b_max, b_sum, v_next


@jit
def ready_values(v, count):
    """The count-th tile of values, once it is there: [keys, K], though it lies the other way."""
    wait_full(v, count)
    b_v = v.buf.index(stage_of(v, count)).reshape([v.buf.shape[3], v.buf.shape[4]])
    return b_v.permute((1, 0))


@jit
def probabilities(b_p, LAYOUT: gl.constexpr):
    """Probabilities in e4m3 as an A operand, keys in `KEY_ORDER`: none moves."""
    ROWS: gl.constexpr = b_p.shape[0]
    KEYS: gl.constexpr = b_p.shape[1]
    b_a = b_p.reshape([ROWS, KEYS // 16, 2, 4, 2]).permute((0, 1, 3, 2, 4))
    b_a = b_a.reshape([ROWS, KEYS]).to(gl.float8e4nv)
    return gl.convert_layout(b_a, register_a(LAYOUT, 8), assert_trivial=True)
