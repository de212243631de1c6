"""Paged decoding: one query per sequence, on keys and values that lie in blocks.

All the work is reading the cache, so three questions decide: is each byte of it read once, do
enough programs read at the same time, and do they all finish together? `per_head`, the first
version, has a program for each query head, and reads the cache of a kv head once for each of the
H / G heads that share it. `paged_attention` has one program for all of them, which also makes
their scores a matrix product for the tensor cores, and cuts long sequences into pieces that
programs read side by side. A second, small kernel merges the pieces.

Kwon et al. 2023, section 5; the cutting: Dao et al. 2023, "Flash-Decoding".
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import LN2, LOG2E
from weft.kernels.code import Pass
from weft.plan.decode import DecodeSizes, check, look, splits

TILE = 64  # tokens that a program holds at a time
WIDEST, MOST = 256, 128  # of a head; query heads for a kv head, in half precision
LONGEST = 2**31 - 2**16  # tokens of a sequence, which are counted in 32 bits
TYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
) -> Tensor:
    """The attention of one query per sequence over keys and values that lie in blocks.

    What weft.ref.decode.paged_attention says, for fp16, bf16 and fp32 and heads of up to 256;
    scores, softmax and sums are in fp32. On a GPU the table and the lengths are not looked at
    beforehand, since that would have to wait for it: a sequence whose table or length leads
    outside becomes NaN, and nothing outside is read. Give a table no wider than the longest
    sequence needs: its width decides how many pieces there are.
    """
    sizes = _accept(q, k_cache, v_cache, block_table, lengths, scale)
    pieces = splits(sizes.B * sizes.G, sizes.most * sizes.block, _slots(q.device), TILE)
    o, lse = partials(q, k_cache, v_cache, block_table, lengths, scale, pieces)
    return merge(o, lse, q.dtype) if pieces > 1 else o.transpose(1, 2)


def _accept(q, k_cache, v_cache, block_table, lengths, scale) -> DecodeSizes:
    """The sizes, if they are such as the kernels take."""
    sizes = check(q, k_cache, v_cache, block_table, lengths, scale)
    if q.dtype not in TYPES:
        raise ValueError(f"q is {q.dtype}, must be one of {', '.join(map(str, TYPES))}")
    for name, width in (("k_cache", sizes.K), ("v_cache", sizes.V)):
        if width > WIDEST:
            raise ValueError(f"{name} has heads of width {width}, must be at most {WIDEST}")
    each, most = sizes.H // sizes.G, MOST // 2 if q.dtype == torch.float32 else MOST
    if each > most:
        raise ValueError(f"q has {each} heads for each of k_cache's, must have at most {most}")
    if sizes.most * sizes.block > LONGEST:
        raise ValueError(
            f"block_table has {sizes.most} blocks of {sizes.block} for a sequence, must be for at "
            f"most {LONGEST} tokens"
        )
    if q.device.type == "cpu":
        look(sizes, block_table, lengths)
    return sizes


def _slots(device: torch.device) -> int:
    """How many programs run at the same time: two on each multiprocessor of a GPU."""
    if device.type == "cpu":
        return 8  # the interpreter runs one after the other
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count


# --- first version: a program for each query head -------------------------------------------------


def per_head(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
) -> Tensor:
    """The same result; each query head reads the cache by itself, from the first token to the last.

    With H / G heads to a kv head every byte is asked for H / G times, and there are only B H
    programs, however long the sequences are.
    """
    B, H, G, K, V, blocks, block, most = _accept(q, k_cache, v_cache, block_table, lengths, scale)
    o = q.new_empty(B, 1, H, V)
    with torch.cuda.device_of(q):
        _head[(H, B)](
            q, k_cache, v_cache, block_table.contiguous(), lengths.contiguous(), o,
            q.stride(0), q.stride(2), q.stride(3), *k_cache.stride(), *v_cache.stride(),
            (K**-0.5 if scale is None else scale) * LOG2E.value, blocks, most, most * block,
            R=H // G, K=K, PK=_padded(K), V=V, PV=_padded(V), BLOCK=block, TILE=TILE, num_warps=4,
        )  # fmt: skip
    return o


def _padded(width: int) -> int:
    """What a tile of that width occupies: a power of two that tensor cores can multiply."""
    return max(16, triton.next_power_of_2(width))


@triton.jit
def _head(
    p_q, p_k, p_v, p_table, p_lengths, p_o,
    stride_qb, stride_qh, stride_qk, stride_kn, stride_ks, stride_kg, stride_kk,
    stride_vn, stride_vs, stride_vg, stride_vv, scale, blocks, most, room,
    R: tl.constexpr, K: tl.constexpr, PK: tl.constexpr, V: tl.constexpr, PV: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One query head of one sequence, over all of it."""
    i_h, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    o_k, o_v = tl.arange(0, PK), tl.arange(0, PV)
    p_q += i_b * stride_qb + i_h * stride_qh
    b_q = tl.load(p_q + o_k * stride_qk, mask=o_k < K, other=0.0).to(tl.float32) * scale
    p_k += i_h // R * stride_kg + o_k[None, :] * stride_kk
    p_v += i_h // R * stride_vg + o_v[None, :] * stride_vv
    length = tl.load(p_lengths + i_b)
    end = tl.minimum(length, room).to(tl.int32)
    b_o = tl.zeros([PV], tl.float32)
    b_top, b_sum = float("-inf"), 0.0
    for start in range(0, end, TILE):
        o_s = start + tl.arange(0, TILE)
        b_block, m_s, b_else = _find(p_table + i_b * most, o_s, end, blocks, BLOCK)
        p_all = p_k + (b_block * stride_kn + o_s % BLOCK * stride_ks)[:, None]
        b_k = tl.load(p_all, mask=m_s[:, None] & (o_k < K)[None, :], other=0.0)
        b_s = tl.where(m_s, tl.sum(b_k.to(tl.float32) * b_q[None, :], 1), b_else)
        b_new = tl.maximum(b_top, tl.max(b_s, 0))
        b_ref = tl.where(b_new == float("-inf"), 0.0, b_new)  # -inf - -inf would be NaN
        b_p = tl.exp2(b_s - b_ref)
        b_shrink = tl.exp2(b_top - b_ref)
        p_all = p_v + (b_block * stride_vn + o_s % BLOCK * stride_vs)[:, None]
        b_v = tl.load(p_all, mask=m_s[:, None] & (o_v < V)[None, :], other=0.0)
        b_o = b_o * b_shrink + tl.sum(b_p[:, None] * b_v.to(tl.float32), 0)
        b_sum = b_sum * b_shrink + tl.sum(b_p, 0)
        b_top = b_new
    b_o = b_o / tl.where(b_sum == 0.0, 1.0, b_sum)
    b_o = tl.where((length >= 0) & (length <= room), b_o, float("nan"))
    p_o += (i_b * tl.num_programs(0) + i_h) * V
    tl.store(p_o + o_v, b_o.to(p_o.dtype.element_ty), mask=o_v < V)


@triton.jit
def _find(p_table, o_s, end, blocks, BLOCK: tl.constexpr):
    """The blocks of these tokens, which of them can be read, and the score of those that cannot.

    A token from `end` on has none and is not looked up: its score is -inf. A block that does not
    exist makes its tokens NaN. 64 bits, because a cache may have more than 2^31 elements.
    """
    m_s = o_s < end
    b_block = tl.load(p_table + o_s // BLOCK, mask=m_s, other=0).to(tl.int64)
    b_else = tl.where(m_s, float("nan"), float("-inf"))
    return b_block, m_s & (b_block >= 0) & (b_block < blocks), b_else


# --- a program for each kv head and piece ---------------------------------------------------------


def partials(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
    pieces: int = 1,
) -> tuple[Tensor, Tensor]:
    """The attention over each of so many pieces of every sequence, and what each piece weighs.

    A piece is as long for every sequence: with so many of them the longest is covered. Where a
    shorter one has ended, pieces are 0 and their log-sum-exp is -inf.
    o [B, H, pieces, V], in fp32 unless there is one piece only, and lse [B, H, pieces] in fp32.
    """
    B, H, G, K, V, blocks, block, most = _accept(q, k_cache, v_cache, block_table, lengths, scale)
    if not 1 <= pieces <= 128:
        raise ValueError(f"pieces is {pieces}, must be from 1 to 128")
    o = q.new_empty(B, H, pieces, V, dtype=q.dtype if pieces == 1 else torch.float32)
    lse = q.new_empty(B, H, pieces, dtype=torch.float32)
    with torch.cuda.device_of(q):
        _piece[(pieces, G, B)](
            q, k_cache, v_cache, block_table.contiguous(), lengths.contiguous(), o, lse,
            q.stride(0), q.stride(2), q.stride(3), *k_cache.stride(), *v_cache.stride(),
            (K**-0.5 if scale is None else scale) * LOG2E.value, blocks, most, most * block,
            **_constants(B, H // G, K, V, block, q.dtype), **_options(H // G, K, V, q.dtype),
        )  # fmt: skip
    return o, lse


def _constants(B: int, R: int, K: int, V: int, block: int, dtype: torch.dtype) -> dict[str, int]:
    """R heads share a kv head; as rows of a tile they are padded, and so are the widths."""
    padded = {"PR": _padded(R), "PK": _padded(K), "PV": _padded(V), "PB": triton.next_power_of_2(B)}
    tile = _tile(R, K, V, dtype)
    return {"R": R, "K": K, "V": V, "BLOCK": block, "TILE": tile} | padded


def _tile(R: int, K: int, V: int, dtype: torch.dtype) -> int:
    """Tokens that a program holds at a time, so few that the registers suffice."""
    large = max(K, V) > 128 and R > 32
    if dtype == torch.float32:  # without tensor cores
        return 16 if max(K, V) > 128 or R > 32 else 32
    return TILE // 2 if large else TILE


def _options(R: int, K: int, V: int, dtype: torch.dtype) -> dict[str, int]:
    """Warps for the registers, and as many tiles on their way as leave room for more programs."""
    if dtype == torch.float32:
        return {"num_warps": 8, "num_stages": 4}
    return {"num_warps": 8 if R > 32 else 4, "num_stages": 5 if max(K, V) <= 128 else 4}


@triton.jit
def _piece(
    p_q, p_k, p_v, p_table, p_lengths, p_o, p_lse,
    stride_qb, stride_qh, stride_qk, stride_kn, stride_ks, stride_kg, stride_kk,
    stride_vn, stride_vs, stride_vg, stride_vv, scale, blocks, most, room,
    R: tl.constexpr, PR: tl.constexpr, K: tl.constexpr, PK: tl.constexpr, V: tl.constexpr,
    PV: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, PB: tl.constexpr,
):  # fmt: skip
    """All R query heads of one kv head, over one piece of one sequence."""
    i_g, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    o_r, o_k, o_v = tl.arange(0, PR), tl.arange(0, PK), tl.arange(0, PV)
    p_q += i_b * stride_qb + (i_g * R + o_r)[:, None] * stride_qh + o_k[None, :] * stride_qk
    b_q = tl.load(p_q, mask=(o_r < R)[:, None] & (o_k < K)[None, :], other=0.0)
    p_k += i_g * stride_kg + o_k[None, :] * stride_kk
    p_v += i_g * stride_vg + o_v[None, :] * stride_vv
    begin, end, fits = _reach(p_lengths, i_b, room, TILE, PB)
    b_o = tl.zeros([PR, PV], tl.float32)
    b_top = tl.full([PR], float("-inf"), tl.float32)
    b_sum = tl.zeros([PR], tl.float32)
    for start in range(begin, end, TILE):
        o_s = start + tl.arange(0, TILE)
        b_block, m_s, b_else = _find(p_table + i_b * most, o_s, end, blocks, BLOCK)
        p_all = p_k + (b_block * stride_kn + o_s % BLOCK * stride_ks)[:, None]
        b_k = tl.load(p_all, mask=m_s[:, None] & (o_k < K)[None, :], other=0.0)
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale
        b_s = tl.where(m_s[None, :], b_s, b_else[None, :])
        b_new = tl.maximum(b_top, tl.max(b_s, 1))
        b_ref = tl.where(b_new == float("-inf"), 0.0, b_new)  # -inf - -inf would be NaN
        b_p = tl.exp2(b_s - b_ref[:, None])
        b_shrink = tl.exp2(b_top - b_ref)
        p_all = p_v + (b_block * stride_vn + o_s % BLOCK * stride_vs)[:, None]
        b_v = tl.load(p_all, mask=m_s[:, None] & (o_v < V)[None, :], other=0.0)
        b_o = tl.dot(b_p.to(b_v.dtype), b_v, b_o * b_shrink[:, None], input_precision="ieee")
        b_sum = b_sum * b_shrink + tl.sum(b_p, 1)
        b_top = b_new
    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)  # nothing seen: 0, and log 1 - inf
    b_o = tl.where(fits, b_o / b_sum[:, None], float("nan"))
    b_lse = tl.where(fits, (b_top + tl.log2(b_sum)) * LN2, float("nan"))
    o_row = ((i_b * tl.num_programs(1) + i_g) * R + o_r) * tl.num_programs(0) + tl.program_id(0)
    tl.store(p_lse + o_row, b_lse, mask=o_r < R)
    p_o += o_row[:, None] * V + o_v[None, :]
    m_o = (o_r < R)[:, None] & (o_v < V)[None, :]
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), mask=m_o)


@triton.jit
def _reach(p_lengths, i_b, room, TILE: tl.constexpr, PB: tl.constexpr):
    """From which token to which this piece goes, and whether the sequence fits in its table.

    The longest sequence of the batch says how long a piece is, in whole tiles. So no program
    reads for longer than another, however different the lengths are.
    """
    o_b = tl.arange(0, PB)
    b_all = tl.load(p_lengths + o_b, mask=o_b < tl.num_programs(2), other=0)
    longest = tl.minimum(tl.max(b_all, 0), room).to(tl.int32)
    each = tl.cdiv(tl.cdiv(longest, tl.num_programs(0)), TILE) * TILE
    length, begin = tl.load(p_lengths + i_b), tl.program_id(0) * each
    end = tl.minimum(tl.minimum(length, room).to(tl.int32), begin + each)
    return begin, end, (length >= 0) & (length <= room)


# --- the pieces become one ------------------------------------------------------------------------


def merge(o: Tensor, lse: Tensor, dtype: torch.dtype) -> Tensor:
    """The attention over whole sequences, from that over each of their pieces.

    exp(lse) is the sum of a piece's exponentials, so it says how much the piece weighs: one of
    -inf, which has seen nothing, weighs 0. o [B, H, pieces, V] and lse [B, H, pieces] become
    [B, 1, H, V] of the `dtype`. Dao et al. 2022, section 3.1.
    """
    B, H, pieces, V = o.shape
    merged = o.new_empty(B, 1, H, V, dtype=dtype)
    with torch.cuda.device_of(o):
        _merge[(B * H,)](o, lse, merged, pieces, **_merge_constants(V, pieces), num_warps=4)
    return merged


def _merge_constants(V: int, pieces: int) -> dict[str, int]:
    return {"V": V, "PV": _padded(V), "PP": triton.next_power_of_2(pieces), "CHUNK": 8}


@triton.jit
def _merge(
    p_parts, p_lse, p_o, pieces,
    V: tl.constexpr, PV: tl.constexpr, PP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One head of one sequence: the mean of its pieces by weight."""
    i_row = tl.program_id(0).to(tl.int64)
    o_v, o_all = tl.arange(0, PV), tl.arange(0, PP)
    p_lse += i_row * pieces
    p_parts += i_row * pieces * V
    b_lse = tl.load(p_lse + o_all, mask=o_all < pieces, other=float("-inf"))
    b_top = tl.max(b_lse, 0)
    b_ref = tl.where(b_top == float("-inf"), 0.0, b_top)
    b_sum = tl.sum(tl.exp2((b_lse - b_ref) * LOG2E), 0)
    b_o = tl.zeros([PV], tl.float32)
    for start in range(0, pieces, CHUNK):
        o_n = start + tl.arange(0, CHUNK)
        b_lse = tl.load(p_lse + o_n, mask=o_n < pieces, other=float("-inf"))
        b_weight = tl.exp2((b_lse - b_ref) * LOG2E)
        m_part = (o_n < pieces)[:, None] & (o_v < V)[None, :]
        p_part = p_parts + o_n[:, None] * V + o_v[None, :]
        b_part = tl.load(p_part, mask=m_part, other=0.0)
        b_o += tl.sum(b_weight[:, None] * b_part, 0)
    b_o = b_o / tl.where(b_sum == 0.0, 1.0, b_sum)
    tl.store(p_o + i_row * V + o_v, b_o.to(p_o.dtype.element_ty), mask=o_v < V)


# --- what a GPU is given --------------------------------------------------------------------------


def passes(target: str) -> tuple[Pass, ...]:
    """The three kernels in bf16, 64 query heads of width 128 on 8 kv heads, blocks of 16 tokens."""
    dtype, K, R, block, pieces = torch.bfloat16, 128, 8, 16, 8
    tensors = dict.fromkeys(("p_q", "p_k", "p_v", "p_o"), f"*{TYPES[dtype]}:16")
    books = dict.fromkeys(("p_table", "p_lengths"), "*i32:16")
    lengths = ("qb", "qh", "kn", "ks", "kg", "vn", "vs", "vg")
    strides = {f"stride_{name}": "i32:16" for name in lengths}
    numbers = {"scale": "fp32", "blocks": "i32", "most": "i32", "room": "i32"}
    signature = tensors | books | strides | numbers
    ones = {"stride_qk": 1, "stride_kk": 1, "stride_vv": 1}
    head = {
        "R": R,
        "K": K,
        "PK": _padded(K),
        "V": K,
        "PV": _padded(K),
        "BLOCK": block,
        "TILE": TILE,
    }
    wide = {"p_o": "*fp32:16", "p_lse": "*fp32:16"}
    merged = {"p_parts": "*fp32:16", "p_lse": "*fp32:16", "p_o": tensors["p_o"], "pieces": "i32"}
    return (
        Pass("per_head", _head, signature, ones | head, {"num_warps": 4}),
        Pass(
            "piece",
            _piece,
            signature | wide,
            ones | _constants(16, R, K, K, block, dtype),
            _options(R, K, K, dtype),
        ),
        Pass("merge", _merge, merged, _merge_constants(K, pieces), {"num_warps": 4}),
    )
