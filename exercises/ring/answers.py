"""Ring attention: four functions to write. README.md says what each has to reach.

The first two are plain Python. The third is run on real ranks: what it computes, keeps and sends is
counted. The last is a Triton kernel, whose loads and stores are counted.

The library's own rings, attention and plans are closed while you are graded. Grade with
`weft grade ring`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first two need neither
    tl = SimpleNamespace(constexpr=None)


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    """Which blocks of a packed sequence each rank holds, so that none has to wait for long.

    documents are the lengths of documents laid end to end, their sum a multiple of n * block. Block
    i has the tokens from i * block up to (i + 1) * block. Where documents begin has nothing to do
    with blocks. A token computes a score with each token of its document up to itself, and with no
    other. Keys and values are gathered, so a rank may hold any blocks, in any order.

    Return n lists of numbers of blocks, each block in one of them, equally many on each rank. The
    busiest rank may compute as many scores more than the idlest as the heaviest block has more than
    the lightest, and no more.

    deal([4, 2, 2], 2, 2): blocks have 3, 7, 3 and 3 scores; [[0, 1], [2, 3]] is one right answer of
    several, with 10 and 6 scores.
    """
    # Your code here.
    raise NotImplementedError


def prefill(node: dict, model: dict, T: int, seconds: float) -> tuple[int, int, int, float] | None:
    """The fewest GPUs that read a prompt of T tokens in time, and how they share its attention.

    node        gpus, a power of two; of a GPU its memory in bytes, the rate in FLOP/s that it
                reaches, and bytes/s that it sends to a GPU of its node, inside, and to one of
                another node, outside. There are as many nodes as are asked for.
    model       params, layers, heads, kv_heads, and head: the channels of a head
    T           a multiple of 2048
    seconds     what reading the prompt may take

    n GPUs, a power of two up to 1024, hold C = T / n tokens each. They are a grid of a * b: an
    all-to-all over heads among a of them, and a balanced causal ring of b between these groups. a
    divides n, gpus and kv_heads, so a group is in one node. All numbers have 2 bytes.

    Every GPU keeps all weights and, of its C tokens, the keys and values of all layers. Besides,
    for one layer at a time: if b > 1 two blocks of a ring, each the keys and values of a C tokens
    and of an a-th of the heads; if a > 1 the queries, keys and values of C tokens once more. That
    has to fit into nine tenths of the memory.

    Matmuls take 2 FLOPs for each parameter and token. Each layer's attention is an exchange and
    then a ring. If a > 1 a GPU gives away (a - 1) / a of its queries, keys, values and outputs,
    inside, and nothing is computed meanwhile. In each of its b steps the ring computes half of the
    pairs of a C queries and a C keys, in an a-th of the heads, with 4 FLOPs for each pair and
    channel; in all but the last it also sends a block, which takes no time of its own as far as the
    step computes. It sends inside if all n GPUs are in one node, else outside. No latencies.

    Return (a, b, bytes that a GPU keeps, seconds) for the least n with a grid that fits and is in
    time: of that n's such grids the fastest. None if there is none.

    Llama 3 8B has 8.03e9 parameters, 32 layers, 32 heads and 8 kv heads of 128. On DGX H100,
    {"gpus": 8, "memory": 80e9, "rate": 593.64e12, "inside": 450e9, "outside": 50e9}, 1048576 tokens
    in 2 seconds: that is (4, 128, 16370378496, 1.00594…), since 256 GPUs are too slow.
    """
    # Your code here.
    raise NotImplementedError


def gradients(q, k, v, do, lse, delta, positions: list[list[int]], window, rank: int, wire):
    """This rank's dq, dk and dv of an attention over ranks, among which keys and values travel.

    positions[r] has the positions in the sequence of the tokens that rank r holds, ascending: any
    of them, at least one, and not equally many on each rank. A query sees the keys of its own and
    of earlier positions; if window is not None, the last `window` of these alone. Scores are
    q k / sqrt(K), and head h has the keys and values of kv head h // (H // G).

    q, do [H, c, K] and k, v [G, c, K] are this rank's, c = len(positions[rank]). lse [H, c] are the
    log-sum-exps over all keys of all ranks, delta [H, c] the sums of do and output over channels.
    float64.

    wire.isend(x, to, tag) posts a send and wire.irecv(shape, source, tag) a receive; both give a
    message. message.wait() waits until it is through, and gives what was received. wire.send and
    wire.recv do both at once; a send is through when the other rank has posted its receive. tag, a
    whole number from 0, which it is if you give none, to 999, tells messages between the same two
    ranks apart; with one tag they come in order. Every message has to be received.

    Bytes: a block, all keys and values of a rank, is sent once for each other rank that sees
    something of it, and gradients as large as a block once for each such rank. Live bytes and
    overlap: README.md.
    """
    # Your code here.
    raise NotImplementedError


def arrive(
    p_o, p_lse, p_part, p_part_lse, p_rows,
    V, BLOCK: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as arrive[(R,)](…): it merges a part into what a rank has, in place.

    o [T, V] and lse [T] are attention to the keys that have been here, with natural log-sum-exps.
    part [R, V] and part_lse [R] come from another kernel, whose log-sum-exps are those in base 2,
    log2 of the total weight. Its row i belongs to row rows[i] of o; rows, int32 [R], are all
    different. The other rows of o have nothing to do with this part. All but rows are float32.

    A log-sum-exp of -inf says that nothing was seen; what stands in that row of part, or of o, may
    be anything, NaN too. Others may be any number, 1000 or -100000. Program i merges row i. BLOCK
    is a power of two; V is any number of at least 1, and may be many times BLOCK.

    Load nothing twice, and store nothing twice. Of a part's row that has seen nothing load the
    log-sum-exp alone, and store nothing; of a row of o that has seen nothing do not load o. Touch
    no memory beyond the tensors' ends. The grader adds triton.jit.
    """
    # Your code here.
    raise NotImplementedError
