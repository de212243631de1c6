"""Sparse attention: five functions to write. README.md says what each has to reach.

The first three are plain Python. The fourth is given torch tensors: what it reads and keeps is
counted. The last is a Triton kernel, whose loads and stores are counted.

The library's own attention and plans are closed while you are graded. Grade with
`weft grade sparse`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first three need neither
    tl = SimpleNamespace(constexpr=None)

# BEGIN SOLUTION
from bisect import bisect_left, bisect_right

# END SOLUTION


def tally(T: int, w: int, marked: list[int], rows: int, columns: int) -> tuple[int, int]:
    """The pairs of a causal window with global tokens anywhere, and the tiles that hold one.

    Of T tokens, query i sees key j, j at most i, if it is one of the last w, so i - j < w, or if
    one of the two is global; w is at least 1. `marked` has the positions of the global tokens,
    ascending. A tile has `rows` queries and `columns` keys: tile (r, c) those from r * rows and
    from c * columns on, up to T.

    Return (pairs that are seen, tiles in which at least one is), whole numbers, exactly. T may be
    10**9: neither pairs nor tiles nor tokens can be gone through one by one. Rows of tiles can,
    there are at most 100,000, and global tokens, at most 1,000, but not all of these for each row.

    tally(12, 3, [5], 4, 2) is (40, 10).
    """
    # BEGIN SOLUTION
    near = min(w, T)
    pairs = T * near - near * (near - 1) // 2
    for i in marked:  # its column below the window, and its row before it
        pairs += max(0, T - i - w) + max(0, i + 1 - w) - bisect_right(marked, i - w)
    held = sorted({i // columns for i in marked})
    tiles = 0
    for first in range(0, T, rows):
        end = min(T, first + rows)
        low = max(0, first - w + 1) // columns
        if bisect_left(marked, first) < bisect_left(marked, end):
            low = 0  # a global query's row is whole
        tiles += (end - 1) // columns + 1 - low + bisect_left(held, low)
    return pairs, tiles
    # END SOLUTION


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    """The tokens on which one token's output may depend after all layers, ascending.

    layers has the layers from the input's on, each a list of one or more heads, (left, right,
    dilation), with a dilation of at least 1. In such a head the query at i sees itself, and as far
    as they are among the T tokens `left` keys before it and `right` after it: i - dilation,
    i - 2 dilation, … and i + dilation, …. What a layer gives at a token depends on what the layer
    below gave at all tokens that one of its heads sees there.

    heard(12, [[(2, 0, 2)], [(1, 0, 1), (1, 1, 4)]], 9) is [1, 3, 4, 5, 6, 7, 8, 9]: the last layer
    sees 5, 8 and 9 (13 is none of the tokens), and the first goes back from each of them.
    """
    # BEGIN SOLUTION
    tokens = {token}
    for heads in reversed(layers):
        tokens = {
            at
            for i in tokens
            for left, right, dilation in heads
            for at in range(i - left * dilation, i + right * dilation + 1, dilation)
            if 0 <= at < T
        }
    return sorted(tokens)
    # END SOLUTION


def hybrid(
    model: dict, room: int, rate: float, chats: list[int], prompt: int, seconds: float
) -> tuple[int, int, int, float] | None:
    """Which layers get a window, and which one, so that caches fit and a prompt is read in time.

    model       layers; heads, kv_heads and head, the channels of each; block, the side of a square
                of scores that a kernel computes at once; ratio, how many times as long a square
                takes in the windowed kernel as in the dense one, at least 1
    room        bytes for the keys and values of all chats, numbers of 2 bytes
    rate        FLOP/s at which the dense kernel goes through its squares
    chats       tokens of each chat, at least one chat
    prompt      tokens of the prompt that is read
    seconds     what causal attention in all layers may take for it

    Every p-th layer is full, and all others have a causal window of w keys, the query's own among
    them. p is at least 2 and divides `layers`; w is a multiple of `block`, and at most the longest
    chat or the prompt, whichever is longer, rounded up to one. A full layer keeps the keys and
    values of all tokens of a chat, a windowed one those of its last w.

    A square, a whole one at the end too, takes 4 FLOPs for each of its pairs, each head and each
    channel. A full layer goes through the dense kernel. A windowed layer goes through the squares
    that its window touches, in the windowed kernel, or through all causal ones in the dense kernel
    under a mask: whichever is faster.

    Return (p, w, bytes that all chats keep, seconds of attention): of all designs that fit and are
    in time those with the least p, and of these the one with the widest window. None if there is
    none.

    The page's problem has 32 layers with 8 kv heads of 128, here with 32 heads, squares of 128 and
    a ratio of 1.5, and eight chats of 131072 tokens in 40 * 2**30 bytes. If a prompt of 131072 is
    to be read in 4 seconds at 460e12 FLOP/s, that is (4, 9344, 41708158976, 3.98515…).
    """
    # BEGIN SOLUTION
    layers, block = model["layers"], model["block"]
    token = 4 * model["kv_heads"] * model["head"]  # bytes in a layer
    square = 4 * block**2 * model["heads"] * model["head"] / rate
    n = -(-prompt // block)
    dense = n * (n + 1) // 2
    for p in (p for p in range(2, layers + 1) if layers % p == 0):
        full = layers // p
        for w in range(-(-max(prompt, *chats) // block) * block, 0, -block):
            kept = sum(full * length + (layers - full) * min(length, w) for length in chats) * token
            m = min(n, 1 + -(-(w - 1) // block))
            touched = m * n - m * (m - 1) // 2
            took = full * dense + (layers - full) * min(dense, model["ratio"] * touched)
            if kept <= room and took * square <= seconds:
                return p, w, kept, took * square
    return None
    # END SOLUTION


def attend(q, score, cache, top: int, block: int):
    """Attention to blocks that each query chooses, with keys outside: o [T, H, K] and lse [T, H].

    q [T, H, K] are T queries in H heads. Keys and values of a token have G kv heads, and query head
    h belongs to kv head h // (H // G). They lie in blocks: cache.read(g, c) gives (k, v), keys and
    values [block, K] of tokens c * block up to (c + 1) * block in kv head g; of the last block
    those up to T. Its memory counts as long as you keep it.

    score [T, G, N], N = ceil(T / block), says what each block is worth to a query in the heads of
    one kv head, -inf that it must not be chosen. Of the blocks that begin not after it a query
    chooses the `top`, at least 1, with the highest scores, and all if there are fewer. No two of
    its scores are equal, but for -inf; others are finite, of any size. What scores of later blocks
    are has nothing to do with it. q and score stay as they are.

    A query then sees the keys of its own and of earlier positions in the blocks that it has chosen,
    with scores q k / sqrt(K). lse are the log-sum-exps. Who has chosen nothing has 0, and -inf. All
    is float32.

    Read each block that somebody chose once, and no other. Live bytes: README.md.
    """
    # BEGIN SOLUTION
    (T, H, K), (_, G, N) = q.shape, score.shape
    R, t = H // G, torch.arange(T)
    later = torch.arange(N) * block > t[:, None]
    best = score.masked_fill(later[:, None], float("-inf")).topk(min(top, N), -1)
    chosen = best.indices.masked_fill(best.values == float("-inf"), N)
    o, weight = torch.zeros(T, H, K), torch.zeros(T, H)
    most = torch.full((T, H), float("-inf"))
    for g in range(G):
        heads = slice(g * R, g * R + R)
        for c in range(N):
            rows = (chosen[:, g] == c).any(-1).nonzero()[:, 0]
            if len(rows) == 0:
                continue
            k, v = cache.read(g, c)
            s = q[rows, heads] @ k.T * K**-0.5
            hidden = torch.arange(len(k)) + c * block > rows[:, None]
            s.masked_fill_(hidden[:, None], float("-inf"))
            high = torch.maximum(most[rows, heads], s.amax(-1))
            keep = (most[rows, heads] - high).exp()
            s.sub_(high[..., None]).exp_()
            weight[rows, heads] = weight[rows, heads] * keep + s.sum(-1)
            o[rows, heads] = o[rows, heads] * keep[..., None] + s @ v
            most[rows, heads] = high
    return o / weight.clamp(min=1.0)[..., None], most + weight.log()
    # END SOLUTION


def columns(
    p_q, p_k, p_v, p_do, p_lse, p_delta, p_starts, p_queries, p_dk, p_dv,
    T, H, K, scale,
    BLOCK: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as columns[(N, G)](…): dK and dV of blocks that queries chose.

    q and do are [T, H, K]; k, v, dk and dv [T, G, K]; lse, natural log-sum-exps, and delta, the
    sums of do and output over channels, [T, H]. All are float32. Query head h belongs to kv head
    h // (H // G), and scores are scale * q k. A block has BLOCK keys, the last of N what is left of
    T. Query t sees the keys of its own and of earlier positions in the blocks in whose lists it is.

    Program (c, g) makes dk and dv of block c in kv head g. Its queries are queries[i], int32, for
    starts[g * N + c] <= i < starts[g * N + c + 1], in any order, each once; starts is int32, too. A
    list may be empty, and somebody has chosen before masking: it may have queries that came before
    the block and see nothing of it, nor perhaps of any other; then lse is -inf.

    BLOCK, TILE and WIDTH are powers of two of at least 16; TILE queries at a time is a good
    measure. K, any number of at least 1, is at most WIDTH, and T any number of at least 1.

    Load everything once: a program its part of k and v and of the lists, and of the queries in its
    list, q, do, lse and delta in the heads that are its own. Those of a query from before the block
    need not be loaded. Store dk and dv once. Touch no memory beyond the tensors' ends. Use plain
    pointers, and no block pointers or tensor descriptors, which the grader cannot count. Scores may
    be hundreds. The grader adds triton.jit.
    """
    # BEGIN SOLUTION
    c, g = tl.program_id(0), tl.program_id(1)
    N, G = tl.num_programs(0), tl.num_programs(1)
    R = H // G
    o_j, o_x = c * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    own = (o_j[:, None] * G + g) * K + o_x[None, :]
    m_own = (o_j < T)[:, None] & (o_x < K)[None, :]
    b_k = tl.load(p_k + own, mask=m_own, other=0.0)
    b_v = tl.load(p_v + own, mask=m_own, other=0.0)
    b_dk, b_dv = tl.zeros([BLOCK, WIDTH], tl.float32), tl.zeros([BLOCK, WIDTH], tl.float32)
    begin, end = tl.load(p_starts + g * N + c), tl.load(p_starts + g * N + c + 1)
    for start in range(begin, end, TILE):
        o_i = start + tl.arange(0, TILE)
        b_t = tl.load(p_queries + o_i, mask=o_i < end, other=-1)
        m_t = b_t >= c * BLOCK
        m_sees = (b_t[:, None] >= o_j[None, :]) & (o_j < T)[None, :]
        for h in range(g * R, g * R + R):
            at = b_t * H + h
            m_q = m_t[:, None] & (o_x < K)[None, :]
            b_q = tl.load(p_q + at[:, None] * K + o_x[None, :], mask=m_q, other=0.0)
            b_do = tl.load(p_do + at[:, None] * K + o_x[None, :], mask=m_q, other=0.0)
            b_lse = tl.load(p_lse + at, mask=m_t, other=0.0)
            b_delta = tl.load(p_delta + at, mask=m_t, other=0.0)
            b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale - b_lse[:, None]
            b_p = tl.where(m_sees, tl.exp(b_s), 0.0)
            b_dp = tl.dot(b_do, tl.trans(b_v), input_precision="ieee")
            b_ds = b_p * (b_dp - b_delta[:, None]) * scale
            b_dk += tl.dot(tl.trans(b_ds), b_q, input_precision="ieee")
            b_dv += tl.dot(tl.trans(b_p), b_do, input_precision="ieee")
    tl.store(p_dk + own, b_dk, mask=m_own)
    tl.store(p_dv + own, b_dv, mask=m_own)
    # END SOLUTION
