"""What FlashAttention-3's kernels do with a tile: find it, mask it, take it into the softmax.

Nothing here knows of copies or barriers. Scores and maxima are in units of log 2, because exp2 is
an instruction and exp is not.

Letters of the kernels: b_ a tile in registers, o_ offsets, i_ which one of many, p_ a pointer;
capitals are constants of the compiler. b_s scores, b_p probabilities, b_o output.
"""

from typing import NamedTuple

from weft.kernels.gluon import gl, jit, laid_out_as, opaque, where_at_most

# Arguments of every kernel that do not change its code, so that no length asks for a new one.
SIZES = ["T", "S", "H", "R", "scale"]


class Lengths(NamedTuple):
    """What a kernel is about: T queries, S keys, H query heads, of which R share keys; its work.

    With a causal mask query t sees the keys up to t + S - T.
    """

    T: gl.tensor
    S: gl.tensor
    H: gl.tensor
    R: gl.tensor
    p_work: gl.tensor


class WorkItem(NamedTuple):
    """One tile of queries of one head, and the tiles of keys that it meets: the first `full` whole.

    `first` is its first query.
    """

    i_b: gl.tensor
    i_h: gl.tensor
    first: gl.tensor
    tiles: gl.tensor
    full: gl.tensor


# --- which tile -----------------------------------------------------------------------------------


@jit
def work_count(p_work):
    """How many pieces of work the tile scheduler has dealt to this block."""
    return gl.load(p_work + gl.program_id(0))


@jit
def coordinates(p_work, n, T, H, ROWS: gl.constexpr):
    """Batch, head and tile of this block's n-th piece of work."""
    i = gl.load(p_work + (1 + n) * gl.num_programs(0) + gl.program_id(0))
    tiles = gl.cdiv(T, ROWS)
    return i // tiles // H, i // tiles % H, i % tiles


@jit
def work_item(lengths, n, CAUSAL: gl.constexpr, ROWS: gl.constexpr, TILE_K: gl.constexpr):
    """This block's n-th piece of work: a tile of ROWS queries."""
    T, S, H, R, p_work = lengths
    i_b, i_h, i_q = coordinates(p_work, n, T, H, ROWS)
    tiles, full = key_tiles(i_q * ROWS, T, S, CAUSAL, ROWS, TILE_K)
    return WorkItem(i_b, i_h, i_q * ROWS, tiles, full)


@jit
def padded(T):
    """How many numbers per head are kept of rows: enough that no tile ends behind them."""
    return gl.cdiv(T, 128) * 128


# --- which keys it sees ---------------------------------------------------------------------------


@jit
def key_tiles(first, T, S, CAUSAL: gl.constexpr, ROWS: gl.constexpr, TILE_K: gl.constexpr):
    """Tiles of keys that any of ROWS queries from `first` on sees, and those they see in full.

    At least one, so that all warps go through the same motions where nothing is seen.
    """
    end = S
    full = S // TILE_K
    if CAUSAL:
        end = gl.minimum(S, gl.maximum(first + ROWS + S - T, 1))
        full = gl.minimum(full, gl.maximum(first + 1 + S - T, 0) // TILE_K)
    return gl.cdiv(end, TILE_K), full


@jit
def last_visible(first, T, S, CAUSAL: gl.constexpr, ROWS: gl.constexpr, LAYOUT: gl.constexpr):
    """The last key that each of ROWS queries from `first` on sees; below 0 where there is none.

    With a causal mask that is a query's own place, counted from the end; else the last key of all.
    """
    o_last = gl.full([ROWS], S - 1, gl.int32, gl.SliceLayout(1, LAYOUT))
    if CAUSAL:
        o_last = first + S - T + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    return opaque(o_last)


@jit
def mask(b_s, o_last, i_k, LAYOUT: gl.constexpr):
    """-inf for the scores of keys that a query does not see.

    A thread's columns share bits 1 and 2 of their number (it holds two neighbours of every
    eight). Taken to the other side of the comparison, those bits leave numbers that are known
    when the code is made, and that take no register.
    """
    o_k = gl.arange(0, b_s.shape[1], gl.SliceLayout(0, LAYOUT))
    o_lane = o_k & 6
    o_limit = (o_last - i_k * b_s.shape[1])[:, None] - o_lane[None, :]
    return where_at_most(b_s, (o_k - o_lane)[None, :], o_limit)


# --- the online softmax ---------------------------------------------------------------------------


@jit
def begin(
    ROWS: gl.constexpr, K: gl.constexpr, TILE_K: gl.constexpr,
    S_LAYOUT: gl.constexpr, O_LAYOUT: gl.constexpr,
):  # fmt: skip
    """Before the first tile of keys: output 0, maximum -inf, sum 0."""
    b_o = gl.zeros([ROWS, K], gl.float32, O_LAYOUT)
    b_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    return b_o, b_max, thread_sums(gl.zeros([ROWS, TILE_K], gl.float32, S_LAYOUT))


@jit
def softmax(b_s, b_max, b_sum, scale, LIFT: gl.constexpr = 0):
    """Take in a tile: probabilities, new maximum and sum, and older sums' factor.

    Probabilities and sums are times 2^LIFT. A row that has seen nothing yet keeps
    -inf and is compared with 0, for -inf less -inf is NaN.
    """
    b_new = gl.maximum(b_max, gl.max(b_s, 1) * scale)
    b_ref = gl.where(b_new == float("-inf"), 0.0, b_new)
    b_p = gl.exp2(b_s * scale - (b_ref - LIFT)[:, None])
    b_shrink = gl.exp2(b_max - b_ref)
    b_more = thread_sums(b_p)
    b_sum = b_sum * laid_out_as(b_shrink[:, None], b_more) + b_more
    return b_p, b_new, b_sum, b_shrink


@jit
def thread_sums(b_p):
    """What each thread holds of a row, summed: [ROWS, 4], for four threads share a row.

    Columns 8 j + 2 t and the next are thread t's. The four sums meet once, in `normalize`,
    and not in every tile, where it would take four exchanges between threads.
    """
    b_p = b_p.reshape([b_p.shape[0], b_p.shape[1] // 8, 4, 2])
    return gl.sum(gl.sum(b_p, 3), 1)


@jit
def as_column(b, LAYOUT: gl.constexpr):
    """A row's number beside a tile of that layout: [ROWS] as [ROWS, 1]."""
    return gl.convert_layout(b, gl.SliceLayout(1, LAYOUT))[:, None]


@jit
def normalize(b_o, b_max, b_sum, LAYOUT: gl.constexpr):
    """Output and natural log-sum-exp of rows that have seen all their keys; 0, -inf if none."""
    b_max = gl.convert_layout(b_max, gl.SliceLayout(1, LAYOUT))
    b_sum = gl.convert_layout(gl.sum(b_sum, 1), gl.SliceLayout(1, LAYOUT))
    m_blank = b_sum == 0.0
    b_whole = gl.where(m_blank, 1.0, b_sum)
    b_o = gl.where(m_blank[:, None], 0.0, b_o / b_whole[:, None])
    return b_o, (b_max + gl.log2(b_whole)) * 0.6931471805599453  # log 2
