"""What FlashAttention-3's kernels do with a tile: find it, hide what is not seen, take it in.

Nothing here knows of copies or barriers. Scores and maxima are in units of log 2, because exp2 is
an instruction and exp is not.
"""

from weft.kernels.gluon import gl, here, jit, where_at_most

# Arguments of every kernel that do not change its code, so that no length asks for a new one.
SIZES = ["T", "S", "lead", "H", "R", "scale"]


@jit
def pieces(p_work):
    """How many pieces of work this block has been dealt."""
    return gl.load(p_work + gl.program_id(0))


@jit
def place(p_work, n, T, H, ROWS: gl.constexpr):
    """Batch, head and tile of this block's n-th piece, as the tile scheduler dealt them."""
    i = gl.load(p_work + (1 + n) * gl.num_programs(0) + gl.program_id(0))
    tiles = gl.cdiv(T, ROWS)
    return i // tiles // H, i // tiles % H, i % tiles


@jit
def padded(T):
    """How many numbers per head are kept of rows: enough that no tile ends behind them."""
    return gl.cdiv(T, 128) * 128


@jit
def span(first, S, lead, CAUSAL: gl.constexpr, ROWS: gl.constexpr, TILE_K: gl.constexpr):
    """Tiles of keys that any of ROWS queries from `first` on sees, and those they see in full.

    At least one, so that all warps go through the same motions where nothing is seen.
    """
    end = S
    full = S // TILE_K
    if CAUSAL:
        end = gl.minimum(S, gl.maximum(first + ROWS + lead, 1))
        full = gl.minimum(full, gl.maximum(first + 1 + lead, 0) // TILE_K)
    return gl.cdiv(end, TILE_K), full


@jit
def last_seen(first, S, lead, CAUSAL: gl.constexpr, ROWS: gl.constexpr, LAYOUT: gl.constexpr):
    """The last key that each of ROWS queries from `first` on sees; below 0 where there is none.

    With a causal mask that is a query's own place, counted from the end; else the last key of all.
    """
    o_last = gl.full([ROWS], S - 1, gl.int32, gl.SliceLayout(1, LAYOUT))
    if CAUSAL:
        o_last = first + lead + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    return here(o_last)


@jit
def hide(b_s, o_last, i_k, LAYOUT: gl.constexpr):
    """-inf for the scores of keys that a query does not see.

    A thread's columns share bits 1 and 2 of their number. Taken to the other side, they
    leave numbers that are known when the code is made, and that take no register.
    """
    o_k = gl.arange(0, b_s.shape[1], gl.SliceLayout(0, LAYOUT))
    o_lane = o_k & 6
    o_limit = (o_last - i_k * b_s.shape[1])[:, None] - o_lane[None, :]
    return where_at_most(b_s, (o_k - o_lane)[None, :], o_limit)


@jit
def softmax(b_s, b_top, b_sum, scale):
    """Weights of a tile; top score and sum so far; by how much older sums shrink.

    A row that has seen nothing yet keeps -inf and is compared with 0, for -inf less
    -inf is NaN.
    """
    b_new = gl.maximum(b_top, gl.max(b_s, 1) * scale)
    b_ref = gl.where(b_new == float("-inf"), 0.0, b_new)
    b_p = gl.exp2(b_s * scale - b_ref[:, None])
    b_shrink = gl.exp2(b_top - b_ref)
    return b_p, b_new, b_sum * b_shrink + gl.sum(b_p, 1), b_shrink


@jit
def column(b, LAYOUT: gl.constexpr):
    """A number for each row, as it is wanted beside a tile of that layout."""
    return gl.convert_layout(b, gl.SliceLayout(1, LAYOUT))[:, None]


@jit
def finish(b_o, b_top, b_sum):
    """Output and log-sum-exp (natural) of rows that have seen all their keys; 0, -inf if none."""
    m_blank = b_sum == 0.0
    b_whole = gl.where(m_blank, 1.0, b_sum)
    b_o = gl.where(m_blank[:, None], 0.0, b_o / b_whole[:, None])
    return b_o, (b_top + gl.log2(b_whole)) * 0.6931471805599453  # log 2
