"""Attention without the softmax: five functions to write. README.md says what each has to reach.

Tensors are those of one head: q, k [T, K] and v [T, V], a log decay g that is at most 0, and a
state S [K, V]. There is no feature map, no scale, and no division.

The library's own linear attention is closed while you are graded. Grade with `weft grade linear`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # hybrid needs neither
    tl = SimpleNamespace(constexpr=None)


def hybrid(
    layers: int,
    room: int,
    step: int,
    H: int,
    K: int,
    V: int,
    G: int,
    D: int,
    sequences: int,
    prompt: int,
    own: int,
    drafts: int = 0,
) -> tuple[int, int, int] | None:
    """How many layers of a hybrid can afford full attention: (every, kept, moved), or None.

    Layers `every`, 2 * `every` and so on of `layers` have full attention, as in Qwen3-Next with
    every = 4: with every = 1 all of them, with every = layers + 1 none. Recall is what they are
    there for: find the least `every` with which the server keeps at most `room` bytes beside the
    weights, and moves at most `step` bytes beside them in one step of decoding. None if there is
    none.

    A layer of full attention caches keys and values of G kv heads of width D, in bf16. Any other
    layer has H states of K x V in fp32, and the last 3 tokens before the convolutions of q, k and
    v, each of H heads, in bf16; below, a state is all that together.

    `sequences` sequences have a prompt of `prompt` tokens in common, one or more, and `own` tokens
    each of its own. The prompt's cache is kept once for all, and one copy of the states at its end.
    In a step each sequence decodes one token and `drafts` more that a draft model has guessed, of
    which some will turn out to be wrong: there is room for the cache of all of these, and for a
    state after each. So a sequence has 1 + drafts states in each layer, one of which it begins the
    next step from.

    In a step each sequence reads the cache of all tokens before the step, each that of the prompt,
    too, though it is kept once, and writes the cache of the new ones. It reads one state and writes
    1 + drafts.

    48 layers, 32 states of 128 x 128, 2 kv heads of width 256, 64 sequences with 30000 tokens in
    common and 20000 each of its own, 46 * 10**9 bytes of room and 10**11 in a step:
    (4, 37275992064, 88648187904), and with 3 drafts (5, 45909368832, 86079700992).
    """
    # Your code here.
    raise NotImplementedError


def packed(q, k, v, g, S, begin: list[int], C: int):
    """Gated linear attention over packed documents, C tokens at a time: return (o, S).

    S_t = exp(g_t) S_{t-1} + k_t v_t^T and o_t = S_t^T q_t. Document n begins at token begin[n],
    begin[0] is 0, and each has at least one token; a document may end anywhere, and several in one
    chunk. Before the first token of a document the state is zeros, but for document 0, which goes
    on from the state S that is given, as the rest of a longer one. Return the outputs [T, V], and
    the state after the last token, to 1e-9.

    A gate may be as good as closed: exp(g_t) of 1e-300 for one token or for many, where what comes
    later has to be as exact as ever. Leave q, k, v, g and S as they are.

    In the graded run T = 512, C = 32, K = V = 16, all float64; 144 documents have 1 to 5 tokens,
    and the last 128. There is 1 MiB for all that you make, the outputs too, and 56 operations of
    torch for each chunk, 896 in all. What gives a view of a tensor is no operation.
    """
    # Your code here.
    raise NotImplementedError


def kda(q, k, v, g, beta, C: int):
    """Kimi Delta Attention, C tokens at a time: the delta rule with a decay for each channel.

    S_t = (1 - beta_t k_t k_t^T) diag(exp(g_t)) S_{t-1} + beta_t k_t v_t^T and o_t = S_t^T q_t, from
    zeros on: first each row of the state fades by its own gate, then what the faded state says
    under the key is replaced. g is [T, K], beta [T] in (0, 2), each key has length 1. Return the
    outputs [T, V], to 1e-9.

    Gates as in `packed`: any, down to exp(g) of 1e-300, a channel's for many tokens on end.

    In the graded run T = 512, C = 32, K = V = 16, all float64, and no chunk may wait token by
    token: there are 80 operations of torch for each chunk, 1280 in all, and 1 MiB for all that you
    make, the outputs too.
    """
    # Your code here.
    raise NotImplementedError


def both_ways(q, k, v, g, comm):
    """Gated linear attention in both directions over ranks: return this rank's rows of o.

    A sequence is cut into pieces, one for each rank, in their order; q, k, v and g are this rank's.
    Pieces are of any length: a rank may have no token at all, [0, K] and [0, V]. Over the whole
    sequence

        S_t = exp(g_t) S_{t-1} + k_t v_t^T    from the first token on,
        R_t = exp(g_t) R_{t+1} + k_t v_t^T    from the last token back,
        o_t = S_t^T q_t + R_t^T q_t - (k_t . q_t) v_t,

    each from zeros on, so a token's own write counts once. Gates are moderate here.

    comm.rank and comm.n say who you are. comm.send(tensor, to) sends a tensor of float64, of any
    shape, and does not wait; comm.recv(source) waits for the next message from that rank, and
    returns a tensor of the shape that was sent.

    Time is counted in rounds: computing takes none, and a message arrives one round after it was
    sent. So what a rank sends before it has waited for anything is there in round 1, and what it
    sends after it has received a message of round r in round r + 1, at the earliest.

    A rank may send one state, K * V numbers, to each of its neighbours, however long its piece is,
    and the last message has to be there in round n - 1, in which a state gets from one end to the
    other: with one direction after the other it would be twice as many rounds.
    """
    # Your code here.
    raise NotImplementedError


def replay(
    p_S, p_q, p_k, p_v, p_g, p_beta, p_settled, p_count, p_o, N, K, V,
    TILE_K: tl.constexpr, TILE_V: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as replay[(B, ceil(V / TILE_V))](…): a step of decoding with drafts.

    B sequences have a state each, S [B, K, V], of the gated delta rule, and up to N tokens each
    that are not in it: q, k [B, N, K], v [B, N, V], g, beta [B, N], of which the first count[b]
    are there. Of these the first settled[b] are known to be right, and the others are drafts. o is
    [B, N, V]. All are float32, row after row; count and settled [B] are int32, with 0 <= settled
    <= count <= N.

    A token does S = exp(g) S, then S = S + beta k (v - S^T k)^T, and then gives o = S^T q. Let the
    state go through all count[b] tokens. Write back to S, in place, the state after the settled
    ones, so that no draft has to be taken back, and to o the outputs of the drafts.

    Program (b, j) has TILE_V columns of the state of sequence b from j * TILE_V on, and all K rows:
    columns do not need each other. TILE_K and TILE_V are powers of two, TILE_K is at least K, and K
    and V are any numbers. Do not write a decorator: the grader adds triton.jit; a function that
    yours calls needs none either.

    Load each element of S once and store it once, whatever N is; where settled[b] is 0 you need
    not store it. Each program loads k, g and beta of each token that is there once, v once in its
    columns, q of drafts only; settled[b] and count[b] at most once each. Store o of each draft
    once, and touch nothing else.
    """
    # Your code here.
    raise NotImplementedError
