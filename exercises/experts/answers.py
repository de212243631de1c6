"""Mixture of experts: five functions to write. README.md says what each has to reach.

The first two are plain Python, the third is torch. The fourth is run on real ranks: what it
computes, keeps and sends is counted. The last is a Triton kernel, whose loads and stores are
counted.

The library's own experts and plans are closed while you are graded. Grade with
`weft grade experts`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first two need neither
    tl = SimpleNamespace(constexpr=None)


def drops(choices: list[list[list[int]]], E: int, percent: int) -> list[tuple[int, int, int]]:
    """Which choices are dropped if each rank has places of its own, and lends what it leaves empty.

    choices[r][t] are the experts that token t of rank r chooses, k different ones of E, the best
    first. k is the same everywhere; ranks may have different numbers of tokens, or none.

    percent is 100 times the capacity factor. Of the choices of rank r, with T tokens, each expert
    takes up to ceil(k T percent / (100 E)), and the rank's first choices come first: all of them in
    the order of tokens, then all second choices, and so on.

    Then ranks tell each other. A place that a rank has at an expert and does not need is given away
    to a choice of the same expert that found none at home: first choices again before second ones,
    within them those of rank 0 first, within a rank in the order of tokens.

    Return the choices that have no place then, as (rank, token, choice), sorted; the first choice
    is 0.

    drops([[[0, 1], [0, 1], [1, 0]], [[2, 3], [2, 0], [1, 3]]], E=4, percent=100): a rank has
    ceil(2 * 3 / 4) = 2 places at each expert. On rank 0 the second choices of tokens 1 and 2 find
    experts 1 and 0 full; rank 1 has a place left at both. So nothing is dropped: []. With
    percent=50 a rank has one place, and it is [(0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 2, 1)].
    """
    # Your code here.
    raise NotImplementedError


def grid(node: dict, model: dict, nodes: int, batch: int) -> tuple[int, int, int, float] | None:
    """The degrees of expert and pipeline parallelism with which a step is fastest, and fits.

    node        gpus, a power of two; of a GPU its memory in bytes, the rate in FLOP/s that it
                reaches, and bytes/s that it sends to a GPU of its node, inside, and to one of
                another node, outside
    model       layers, all alike; width D, hidden F, experts E, a power of two, and k; other: the
                parameters of a layer that are in no expert; tokens in a microbatch; and kept: bytes
                that a token leaves behind in a layer until its backward pass
    nodes       a power of two; n = nodes * gpus GPUs
    batch       tokens of a step

    p stages have d = n / p GPUs each, and each of the d takes m microbatches, equally many, so that
    the step's tokens are all taken; where that is no whole number of at least 1, there is no such
    grid. p is a power of two up to the number of layers; where it does not divide them, the fullest
    stage has the mean rounded up, and its GPUs decide, in memory and time. e, a power of two,
    divides E and d; e neighbours of a stage share its experts, and d / e of these groups have the
    same ones. A group is inside a node if e is at most gpus; else it is e / gpus whole nodes.

    Memory: 2 bytes for each parameter, 2 for its gradient, and 12 for the optimizer's state, which
    is divided among all GPUs that have this parameter: an expert's, or the other ones, which all d
    have. In each of its layers a GPU keeps what min(m, p) microbatches leave behind. All of it has
    to fit into nine tenths of the memory. An expert has three matrices, D x F.

    Time: a matmul takes 2 FLOPs for each parameter and token in forward and 4 in backward; a token
    meets k experts and the other parameters. In forward, in a group inside a node, a token of D
    numbers is sent once to each other GPU that has any of its experts, inside; in a larger one once
    to each other node that has any, outside. One result comes back from each, and backward sends
    both again; a number has 2 bytes. A token's experts are any k of E, all sets as likely, and a
    GPU sends as many as that gives on average. Nothing is computed meanwhile, and other messages
    take no time. A microbatch takes forward and backward of all layers of its stage; a step takes
    m + p - 1 times as long.

    Return (e, p, bytes that a GPU keeps, seconds) of the fastest such grid that fits, of equally
    fast ones any; None if none fits.

    On 16 nodes with H200, {"gpus": 8, "memory": 141e9, "rate": 494.7e12, "inside": 450e9,
    "outside": 50e9}, DeepSeek-V3's 58 layers of experts, {"layers": 58, "width": 7168,
    "hidden": 2048, "experts": 256, "k": 8, "other": 293000000, "tokens": 4096, "kept": 60000}, with
    4194304 tokens: that is (4, 32, 110024953216.0, 19.21379…).
    """
    # Your code here.
    raise NotImplementedError


def balance(scores, expert, kept, begins: list[int]):
    """DeepSeek-V3's balance loss within each document, and its gradient in the scores.

    scores [T, E] float32 are logits. What a token thinks of expert i is the sigmoid of its score,
    and its probability p_i that sigmoid over the sum of all E, chosen or not. expert [T, k] int64
    has the k different experts that each token has chosen, by a bias, so that they need not have
    the largest scores. kept [T, k] bool says which choices have found room.

    T tokens are documents laid end to end; document j begins at token begins[j], ascending, the
    first at 0. In a document of n tokens f_i is E / (k n) times the number of its choices that fell
    on expert i, with room or without, and P_i the mean of p_i over its tokens. Its loss is the sum
    over i of f_i P_i. Return the mean of all documents' losses, a tensor without dimensions, and
    its gradient in the scores, [T, E], both float32; f is a constant.

    Scores are between -30 and 30. Operations: README.md.
    """
    # Your code here.
    raise NotImplementedError


def merged(x, dy, router, up, down, k: int, most: int, rank: int, n: int, wire):
    """A layer of experts over ranks, with its gradients: a token goes once to each rank it needs.

    x [T, D] are this rank's tokens, of which each rank may have another number, or none. router
    [D, E] is the same on all n ranks. A token's probabilities are the softmax of x @ router; it
    chooses its k likeliest experts. An expert takes of a rank's choices the first `most`, in the
    order of tokens; others are dropped. An expert makes relu(x @ up) @ down of a token. y is the
    sum of what a token's experts make of it, each times its probability, which is not renormalised.

    e ranks in a row share the experts: ranks 0 to e - 1, e to 2 e - 1, and so on; e divides n. Rank
    e g + r has the experts from r E / e on: up [E / e, D, F], down [E / e, F, D]. Tokens stay in
    their row. Ranks of different rows with the same experts are replicas.

    The loss is the mean over all n ranks of the sum of y * dy over a rank's own tokens. Return y
    and the gradients of the loss in x, router, up and down, as on one process. float64.

    wire.tell(counts) tells each rank of the row a whole number, counts[i] the i-th, and returns
    what they have told this one. wire.exchange(rows, send, receive) sends the first send[0] rows of
    [sum(send), W] to the first rank of the row, the next to the second, and returns what came,
    [sum(receive), W], sorted by sender; what a rank sends itself is no message. Autograd knows it:
    backward sends gradients the other way. wire.sum(x, ranks) is the sum over ranks, each of which
    gives the same list. Every rank makes the same calls in the same order, those of backward too.

    Bytes: a token goes once to each other rank that has any of its kept experts, as D + E / e
    numbers, D come back, and gradients as many. Summed are gradients, once. Live bytes: README.md.
    """
    # Your code here.
    raise NotImplementedError


def fused(
    p_x, p_w, p_order, p_weight, p_ends, p_y,
    C, k, E, D, N,
    BLOCK: tl.constexpr, EXPERTS: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as fused[(C // BLOCK + E + 1,)](…): one launch for all experts' matmuls.

    Each of T tokens has k choices, C = T k in all; choice c is one of token c // k. order, int32
    [C], has the choices' numbers sorted by expert, and behind them those that were dropped. ends,
    int32 [E], says where each expert's part of order ends; it begins where the one before it ends,
    the first at 0. Parts may be empty, each of them and all. x [T, D], w [E, D, N], weight [C] and
    y [C, N] are float32.

    Row c of y becomes weight[c] * x[c // k] @ w[e] for a choice c of expert e, and zeros for one
    that was dropped. There is no copy of x that is sorted.

    A program takes up to BLOCK choices that follow each other in order, all of one expert, or all
    dropped; there may be more programs than it takes, and these touch nothing but ends. C, k, E, D
    and N are any numbers of at least 1. BLOCK, EXPERTS > E, WIDE >= D and COLUMNS >= N are powers
    of two.

    ends may be loaded as often as you like. Load each of order once, and each weight of a choice
    that was kept; a row of x once for each choice of its token that was kept, and a matrix once
    for each program that needs it: an expert with c choices has ceil(c / BLOCK). Of what was
    dropped load neither x nor weight: anything may stand there. Store each element of y once. Touch
    no memory beyond the tensors' ends. The grader adds triton.jit.
    """
    # Your code here.
    raise NotImplementedError
