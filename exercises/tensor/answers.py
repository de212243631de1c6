"""Tensor and sequence parallelism: five functions to write. README.md says what each has to reach.

The first two are plain Python, the third is torch. The fourth is run on real ranks: what it
computes, keeps and sends is counted. The last is a Triton kernel, whose loads and stores are
counted.

The library's own plans, runs and kernels are closed while you are graded. Grade with
`weft grade tensor`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first two need neither
    tl = SimpleNamespace(constexpr=None)


def reads(H: int, G: int, K: int, t: int, u: int, rank: int) -> list[tuple[int, int, int]]:
    """What a rank of u reads of a fused QKV weight that t ranks have written, each its own part.

    A head has K rows. There are H query heads and G kv heads; G divides H, and query head h uses
    kv head h // (H / G). Of n ranks, at most H, each has query heads that follow each other: the
    first H % n of them H // n + 1, the others H // n. A rank's part of the weight has the rows of
    its query heads; then of each kv head that one of these uses the rows of its key; then those of
    its value. So a kv head whose query heads are on several ranks is on each of them.

    Rank i of t has written file i, its part alone. Return the reads, (file, first row, row behind
    the last one), that put together in their order are the part of `rank` of u. A head that several
    files have is read from the first of these. A read that begins where the one before it ends, in
    the same file, is no new read: the two are one.

    reads(H=4, G=2, K=2, t=1, u=2, rank=1): the whole has 8 rows of query heads, 4 of keys and 4 of
    values, and rank 1 query heads 2 and 3, which use kv head 1: [(0, 4, 8), (0, 10, 12),
    (0, 14, 16)]. With t=2, u=1, rank=0 it is [(0, 0, 4), (1, 0, 4), (0, 4, 6), (1, 4, 6),
    (0, 6, 8), (1, 6, 8)].
    """

    # Your code here.
    raise NotImplementedError


def degree(node: dict, model: dict, nodes: int) -> tuple[int, str, int, float] | None:
    """The tensor parallelism, and what layers keep, with which a token costs the least GPU time.

    node        gpus; of a GPU its memory in bytes, the rate in FLOP/s that it reaches, and the
                bytes/s of its links inside the node, and of its port to other nodes, outside
    model       layers of a stage, all alike; width D, hidden F, heads H, groups G of kv heads, key
                K numbers in a head; T tokens of a microbatch, one sequence; flying: microbatches
                whose backward is to come; state: bytes for a parameter, its gradient and optimizer
    nodes       t is any number of GPUs up to those of a node, or all GPUs of some of these nodes

    A layer is a parallel block, y = x + attention(norm(x)) + mlp(norm(x)), of one norm with D
    parameters, q, k, v and the output's matrix, and three of D x F: the MLP makes silu(gate) * up.
    It is cut in t with sequence parallelism: outside of attention and MLP a rank has T / t tokens.
    t divides H, F and T, and G or is a multiple of it; then a rank has one of the kv heads. The
    norm is whole on every rank.

    Forward gathers what the norm has made, and scatters one sum of what attention and MLP have
    made; backward has the opposite of both. What layers keep, of each microbatch that is flying,
    2 bytes a number:

    all         the block's input, of a rank's own tokens; what the norm has made, gathered; of all
                tokens the rank's q, k and v, what attention makes of them, gate, up and their
                product
    regather    the same, but what the norm has made of its own tokens: backward gathers it again
    recompute   the block's input, of its own tokens. Backward computes all of forward again, its
                scatter left out, and for that has room for what "all" keeps, less the input, for
                one layer of one microbatch

    Memory: the states of a rank's parameters and all that is kept have to fit into nine tenths.

    Time: a matmul takes 2 FLOPs for each parameter of its matrix and token in forward, attention's
    scores and values 2 T K for each token and query head together, as it is causal; backward twice
    as many. A gather or a scatter of T tokens sends (t - 1) / t of their numbers, 2 bytes each: in
    one node at the rate inside; over several by a ring through each port of a node, so at gpus
    times outside, but not faster than inside. Nothing is computed meanwhile; all else takes no
    time.

    Return (t, what is kept, bytes in a rank's memory, seconds of a microbatch in all layers) with
    the smallest t * seconds of those that fit, of equal ones any; None if none fits.

    A stage of Command R+ on two nodes with H100, {"gpus": 8, "memory": 80e9, "rate": 494.7e12,
    "inside": 450e9, "outside": 50e9}: {"layers": 16, "width": 12288, "hidden": 33792, "heads": 96,
    "groups": 8, "key": 128, "tokens": 4096, "flying": 4, "state": 18} takes (8, "regather",
    66625863680, 0.17693…).
    """
    # Your code here.
    raise NotImplementedError


def finish(scores, stats, targets, first: int, words: int, smoothing: float, z: float):
    """The loss and a rank's part of its gradient, from what all parts say of each token.

    scores [T, n] float32 are the scores of words first to first + n - 1, a rank's part. There are
    `words` words, numbered from 0; the parts are padded, so that the last columns of the last
    parts, or all columns, may be of no word. There anything may stand, NaN too.

    stats [parts, T, 4] float32 are what the parts have told each other of each token: the largest
    score of a part's words; the sum over these of exp(score - that largest one); the sum of their
    scores; and the target's score, 0 if it is in another part. A part without any word has
    (-inf, 0, 0, 0). targets [T] int64 are numbers of words, or -1: such a token does not count, and
    its scores and stats may be anything.

    With p the softmax over all words and lse the log of the sum of all exp(score), a token's loss
    is (smoothing - 1) * log p[target] - smoothing * (the mean of log p over words) + z * lse**2.
    Return the mean over the tokens that count, a tensor without dimensions, and its gradient in
    this part's scores, [T, n]: zeros where a column is of no word or a token does not count. Both
    are float32, and zeros if no token counts. Scores of words are between -300 and 300.

    Leave what you are given as it was: the gradient is a tensor of its own.

    Live bytes: README.md.
    """
    # Your code here.
    raise NotImplementedError


def block(x, dy, gain, wq, wkv, wo, gate_up, down, lengths: list[int], rank: int, wire):
    """A parallel block over ranks, sequence parallel, with its gradients: one norm, one kv head.

    y = x + attention(norm(x)) + mlp(norm(x)). norm(x) is x / sqrt(mean(x**2) + 1e-6) * gain, over
    the D numbers of a token. Each head's q is norm(x) @ wq, K columns for each head; k and v, of
    one head that all share, are the first and the last K columns of norm(x) @ wkv; a token weighs
    the v of all tokens up to itself by the softmax of q @ k / sqrt(K), and the heads side by side
    are multiplied with wo. The MLP makes (silu(gate) * up) @ down, gate and up being the first and
    the last half of the columns of norm(x) @ gate_up.

    Rank r of len(lengths) has lengths[r] tokens, those of rank 0 first: x and dy are its own. It
    has some of the heads and of the hidden columns, and others may have more: wq [D, h K] and
    wo [h K, D], gate_up [D, 2 f] and down [f, D], each the rank's own. gain [D] and wkv [D, 2 K]
    are whole, the same on all ranks. All is float64.

    The loss is the sum of y * dy over all tokens of all ranks. Return y of the rank's own tokens
    and the gradients of the loss in x, gain, wq, wkv, wo, gate_up and down, each of the shape of
    what was given; those of gain and wkv are whole, and the same on all ranks.

    wire.gather(rows) takes [lengths[rank], W] and gives [sum(lengths), W], rows of rank 0 first.
    wire.scatter(rows) takes [sum(lengths), W], and gives this rank's [lengths[rank], W] of the sum
    over ranks. wire.sum(tensor) gives the sum over ranks, of any shape. Every rank makes the same
    calls in the same order. Autograd knows nothing of them, and torch.autograd.Function cannot tell
    it, as these tensors lie elsewhere: take gradients of the pieces between, with
    torch.autograd.grad or by hand, and send what backward has to send.

    Sent and live bytes: README.md.
    """
    # Your code here.
    raise NotImplementedError


def statistics(
    p_scores, p_targets, p_stats,
    T, n, stride, first,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as statistics[(ceil(T / ROWS),)](…): what a part says of each token.

    Row t of scores [T, stride] float32 has in its first n columns the scores of words first to
    first + n - 1; n may be 0. The other columns are padding. targets, int32 [T], are numbers of
    words, or negative: such a token does not count.

    Row t of stats [T, 4] float32 becomes the largest of the n scores; the sum over them of
    exp(score - that largest one); the sum of the scores; and the target's score, 0 if it is none of
    these words. With n = 0 it is (-inf, 0, 0, 0), and for a token that does not count four zeros.
    Scores are between -300 and 300; in padding, and in rows that do not count, anything may stand.

    A program takes ROWS rows, the last one those that are left, and COLUMNS of their columns at
    once, so that it has to take several turns; both are powers of two, and T, n, stride and first
    any numbers, T at least 1. Load each score of a token that counts once, and no other; each
    target once; store each of stats once. Touch no memory beyond the tensors' ends. The grader adds
    triton.jit.
    """
    # Your code here.
    raise NotImplementedError
