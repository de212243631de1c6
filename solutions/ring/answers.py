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
    # BEGIN SOLUTION
    places = [place for length in documents for place in range(length)]
    scores = [sum(places[i : i + block]) for i in range(0, len(places), block)]
    order = sorted(range(len(scores)), key=scores.__getitem__)
    return [order[rank::n] for rank in range(n)]
    # END SOLUTION


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
    # BEGIN SOLUTION
    H, G, K = model["heads"], model["kv_heads"], model["head"]
    n = 1
    while n <= 1024:
        C, found = T // n, []
        for a in range(1, min(n, node["gpus"]) + 1):
            if n % a or node["gpus"] % a or G % a:
                continue
            b, kept = n // a, 2 * model["params"] + 4 * model["layers"] * C * G * K
            kept += (8 * C * G * K if b > 1 else 0) + (2 * C * (H + 2 * G) * K if a > 1 else 0)
            exchange = 2 * C * (2 * H + 2 * G) * K * (a - 1) / a / node["inside"]
            step = 2 * a * C * C * H * K / node["rate"]
            hop = 4 * C * G * K / node["inside" if n <= node["gpus"] else "outside"]
            layer = exchange + (b - 1) * max(step, hop) + step
            took = 2 * model["params"] * C / node["rate"] + model["layers"] * layer
            if 10 * kept <= 9 * node["memory"] and took <= seconds:
                found.append((took, a, b, kept))
        if found:
            took, a, b, kept = min(found)
            return a, b, kept, took
        n *= 2
    return None
    # END SOLUTION


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
    # BEGIN SOLUTION
    n, G, K = len(positions), k.shape[0], k.shape[2]

    def sees(reader, owner):
        back = (i - j for i in positions[reader] for j in positions[owner])
        return any(x >= 0 and (window is None or x < window) for x in back)

    def stops(owner):
        others = [(owner + step) % n for step in range(1, n)]
        return [owner, *(r for r in others if sees(r, owner))]

    def post(owner, source, tag):
        return wire.irecv([2, G, len(positions[owner]), K], source, tag)

    def part(owner, keys, values):  # of this rank's dq and of the owner's dk and dv
        return _block(q, keys, values, do, lse, delta, positions[rank], positions[owner], window)

    own, tours = stops(rank), [stops((rank - step) % n) for step in range(1, n)]
    tours = [tour for tour in tours if rank in tour]
    if len(own) > 1:
        wire.isend(torch.stack([k, v]), own[1], 2 * rank)
    coming = [post(tour[0], tour[tour.index(rank) - 1], 2 * tour[0]) for tour in tours[:1]]
    dq, home = part(rank, k, v)
    for i, tour in enumerate(tours):
        owner, at = tour[0], tour.index(rank)
        after = tour[at + 1] if at + 1 < len(tour) else owner
        block = coming.pop().wait()
        if after != owner:
            wire.isend(block, after, 2 * owner)
        for then in tours[i + 1 : i + 2]:
            coming.append(post(then[0], then[then.index(rank) - 1], 2 * then[0]))
        so_far = post(owner, tour[at - 1], 2 * owner + 1) if at > 1 else None
        more, made = part(owner, *block)
        dq += more
        if so_far:
            made += so_far.wait()
        wire.isend(made, after, 2 * owner + 1)
        del block, so_far, more, made
    if len(own) > 1:
        home += post(rank, own[-1], 2 * rank + 1).wait()
    return dq, home[0], home[1]
    # END SOLUTION


# BEGIN SOLUTION
def _block(q, k, v, do, lse, delta, rows, columns, window):
    """One block's part of dq, and its dk and dv, stacked."""
    (H, c, K), G = q.shape, k.shape[0]
    q, do = q.view(G, -1, K), do.view(G, -1, K)  # a kv head's heads one below the other
    back = torch.tensor(rows)[:, None] - torch.tensor(columns)
    hidden = (back < 0) if window is None else (back < 0) | (back >= window)
    s = q @ k.mT * K**-0.5 - lse.view(G, -1, 1)
    p = s.exp_().masked_fill_(hidden.repeat(H // G, 1), 0.0)
    made = torch.empty(2, *k.shape, dtype=k.dtype)
    torch.matmul(p.mT, do, out=made[1])
    ds = p * (do @ v.mT - delta.view(G, -1, 1)) * K**-0.5
    torch.matmul(ds.mT, q, out=made[0])
    return (ds @ k).view(H, c, K), made


# END SOLUTION


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
    # BEGIN SOLUTION
    i = tl.program_id(0)
    b_new = tl.load(p_part_lse + i) * 0.6931471805599453
    if b_new > float("-inf"):
        row = tl.load(p_rows + i)
        b_old = tl.load(p_lse + row)
        m_old = b_old > float("-inf")
        b_m = tl.maximum(b_old, b_new)
        b_keep, b_add = tl.exp(b_old - b_m), tl.exp(b_new - b_m)
        b_sum = b_keep + b_add
        for start in range(0, V, BLOCK):
            o_v = start + tl.arange(0, BLOCK)
            m_v = o_v < V
            b_part = tl.load(p_part + i * V + o_v, mask=m_v)
            b_o = tl.load(p_o + row * V + o_v, mask=m_v & m_old, other=0.0)
            tl.store(p_o + row * V + o_v, (b_keep * b_o + b_add * b_part) / b_sum, mask=m_v)
        tl.store(p_lse + row, b_m + tl.log(b_sum))
    # END SOLUTION
