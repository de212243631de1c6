"""Collectives: five functions to write. README.md says what each has to reach.

In the first two a plan is a list of steps, a step a list of sends, a send (source, target, chunk,
reduce): rank `source` sends its copy of chunk number `chunk` to rank `target`, where it is added to
what is there if `reduce` is true, and replaces it otherwise. `Send` from weft.plan.collectives is
such a tuple. All sends of a step happen at once: each carries what its source held before the step.
The sends of a step from one rank to another are one *message*, however many chunks there are in it.

The library's own plans and prices are closed while you are graded. Grade with
`weft grade collectives`.
"""

from types import SimpleNamespace

from weft.plan.collectives import Send

try:
    import triton.language as tl
except ImportError:  # only the last one needs it
    tl = SimpleNamespace(constexpr=None)


def gather(n: int) -> list[list[Send]]:
    """All-gather in few steps: rank r of n begins with chunk r, and every rank ends with all n.

    Nobody is sent a chunk that it has. In a step a rank sends to one other rank at most, and
    receives from one at most, any number of chunks. There are as few steps as there can be: in a
    step no rank can come to have more than twice as many chunks as any had before.

    The ranks stand in a ring, in which a message from r to s travels (s - r) % n or (r - s) % n
    places, whichever is less. Far links are thin, so far messages have to be small: for each
    message, its chunks times the places that it travels are less than n.

    At n = 5 there are 3 steps and 4 chunks come to each rank; a message that travels 2 places has 2
    chunks at most. For n = 1 return no steps.
    """
    # BEGIN SOLUTION
    steps, far, had = [], 1 << (n - 1).bit_length(), [0]  # chunks r - o of rank r, for o in had
    while far > 1:
        far //= 2
        more = [o for o in had if o + far < n]
        steps.append([Send(r, (r + far) % n, (r - o) % n, False) for r in range(n) for o in more])
        had += [o + far for o in more]
    return steps
    # END SOLUTION


def swap(nodes: int, local: int) -> list[list[Send]]:
    """All-to-all on `nodes` nodes of `local` ranks each, in few messages that stay on their rails.

    Rank node * local + i is the i-th of its node and sits on rail i. With n = nodes * local ranks,
    chunk s * n + t is what rank s has for rank t: s begins with it, t ends with it, and what else
    lies about in the end does not matter. Nothing is added, so `reduce` is false everywhere.

    Between nodes a message goes from rail to the same rail alone. A rank sends nodes - 1 of them to
    other nodes, at most, and in them local * (nodes - 1) chunks; to ranks of its own node it sends
    nodes * (local - 1) chunks, no more. All takes local - 1 + nodes - 1 steps at most, and in a
    step a rank sends to one other rank at most, and receives from one at most.

    At 3 nodes of 2 ranks a rank sends 2 messages with 4 chunks in all to other nodes, and 3 chunks
    to its neighbour, in 3 steps; sent one by one, its chunks for other nodes are 4 messages.
    """
    # BEGIN SOLUTION
    n = nodes * local
    everyone = [(v, i) for v in range(nodes) for i in range(local)]
    steps = []
    for k in range(1, local):  # to the rank of the same node that is on the target's rail
        steps.append([])
        for v, i in everyone:
            s, j = v * local + i, (i + k) % local
            targets = range(j, n, local)
            steps[-1] += [Send(s, v * local + j, s * n + t, False) for t in targets]
    for k in range(1, nodes):
        steps.append([])
        for v, i in everyone:
            t = (v + k) % nodes * local + i
            sources = range(v * local, (v + 1) * local)
            steps[-1] += [Send(v * local + i, t, s * n + t, False) for s in sources]
    return steps
    # END SOLUTION


def both_ways(rank: int, sizes: list[int], tensor, exchange):
    """Reduce-scatter on real ranks in a ring that runs both ways at once, with unequal chunks.

    Rank r of n = len(sizes) owns chunk r, sizes[r] elements, perhaps none; a tensor is cut into the
    chunks of ranks 0, 1, 2, … in this order.

    tensor: a flat torch tensor of float64, with sum(sizes) elements; leave it as it is.
    exchange(right, left, from_left, from_right) -> (tensor, tensor): send the flat tensor `right`
        to rank + 1 and `left` to rank - 1, modulo n, and get from_left elements from rank - 1 and
        from_right from rank + 1, all at the same time. All ranks have to call it equally often,
        n // 2 times, also where some of these tensors are empty. What comes is yours to write into.

    Return the sum over ranks of chunk `rank`, flat, float64. A link works in both directions, so
    sums come home from both sides: no sum travels more than n // 2 places. This rank sends each
    chunk but its own once, sum(sizes) - sizes[rank] elements in all. Tensors that you have made or
    got may have 6 times the elements of the longest chunk, at any time.

    With sizes [1, 2, 3, 4] there are 2 calls. Two ranks lie opposite each other: what rank 0 has
    for rank 2 goes round one side, no matter which.
    """
    # BEGIN SOLUTION
    n, half = len(sizes), len(sizes) // 2
    chunks = tensor.split(sizes)
    none = tensor[:0]
    coming = none, none
    for far in range(half, 0, -1):  # how many places from here those are for whom we send
        both = 2 * far < n  # the rank opposite is reached by the right alone
        to_right, to_left = (rank + far) % n, (rank - far) % n
        at_right, at_left = (rank - 1 + far) % n, (rank + 1 - far) % n
        outgoing = [chunks[to_right], chunks[to_left] if both else none]
        if far < half:
            outgoing[0] = coming[0].add_(outgoing[0])
            if 2 * (far + 1) < n:
                outgoing[1] = coming[1].add_(outgoing[1])
        coming = exchange(*outgoing, sizes[at_right], sizes[at_left] if both else 0)
    total = chunks[rank].clone()
    for came, sides in zip(coming, (2, 3), strict=True):
        if n >= sides:
            total += came
    return total
    # END SOLUTION


def buckets(cluster: dict, grads: list[tuple[float, float]]) -> tuple[int, str, str, float]:
    """The buckets, the algorithm and the protocol with which all gradients are summed soonest.

    grads     a (bytes, seconds) for each gradient, in the order in which backward makes them; each
              takes so many seconds after the one before, when backward has all SMs
    cluster   nodes, a power of two, at least 2; gpus of a node, at least 2; rates in bytes/s that
              are reached by a GPU's NVLink, wire, and by a port to the network, port, one for each
              GPU; sms of a GPU; taken, by algorithm, the SMs that a call of it takes, less than
              sms; protocols: see below

    k gradients that follow each other are a bucket, the same k for all; the last bucket has those
    that are left. A bucket is summed over all n = nodes * gpus ranks by one call. It begins when
    the last of its gradients is there and the call before it has ended. While a call runs, backward
    has the other SMs alone, and runs at their share of its speed. All calls are of one algorithm
    and one protocol. All that is known is known before: the seconds of a call do not change.

    cluster["protocols"][protocol] has share, the part of a rate that is left for data; most, in
    bytes/s, above which no rate rises; and for some algorithms (start, inside, outside), a call's
    seconds to begin with, and those of a hop in a node and of one between nodes. With W the less of
    wire and gpus * port, S the bytes of the bucket, and the latencies of that algorithm, it takes

    Ring      start, and 2 (n - 1) hops, 2 nodes of which go between nodes; and 2 (n - 1) / n S at
              the rate min(share W, most)
    Tree      start, and up and down gpus - 1 hops in a node and log2 nodes between nodes, so twice
              as many; and 2 S at the rate min(0.78 share W, most)
    NVLS      start, and up and down log2 nodes hops between nodes, each with one in a node; and
              2 (n - 1) / n S at the rate min(share W, most): a tree over nodes whose switches add

    This is a simpler form of NCCL's cost model. An algorithm that a protocol has no latencies for
    cannot be taken with it.

    Return (k, algorithm, protocol, seconds from the beginning of backward to the end of the last
    call) with the least seconds; of equal ones any.

    Llama 3 8B with 4096 tokens on 8 nodes of eight H100s, whose cost model is NCCL's: {"nodes": 8,
    "gpus": 8, "wire": 370e9, "port": 47e9, "sms": 132, "taken": {"Ring": 16, "Tree": 32,
    "NVLS": 16}, "protocols": {"LL": {"share": 0.5, "most": 20.4e9, "Ring": (6.6e-6, 1e-6, 2.7e-6),
    "Tree": (6.8e-6, 0.6e-6, 5e-6)}, "LL128": {"share": 0.92, "most": 370e9, "Ring": (14e-6, 1.9e-6,
    4e-6), "Tree": (14e-6, 1.25e-6, 8.5e-6)}, "Simple": {"share": 1.0, "most": 370e9, "Ring":
    (8.4e-6, 3.4e-6, 14e-6), "Tree": (8.4e-6, 4e-6, 14e-6), "NVLS": (25e-6, 0.0, 20.9e-6)}}}. Its
    gradients, of the head, 32 layers and the embedding, [(1050673152, 0.0174)] +
    [(436207616, 0.00722)] * 32 + [(1050673152, 0.0)], take (2, "NVLS", "Simple", 0.2661928…).
    One gradient of 25e6 bytes after 0.004 seconds takes (1, "Tree", "LL128", 0.0042708…).
    """
    # BEGIN SOLUTION
    nodes, gpus = cluster["nodes"], cluster["gpus"]
    n, levels = nodes * gpus, nodes.bit_length() - 1
    rate = min(cluster["wire"], gpus * cluster["port"])

    def call(nbytes, algorithm, protocol):
        start, inside, outside = protocol[algorithm]
        part, sent, hops, across = 1.0, 2 * (n - 1) / n, 2 * (n - 1 - nodes), 2 * nodes
        if algorithm == "Tree":
            part, sent, hops, across = 0.78, 2, 2 * (gpus - 1), 2 * levels
        elif algorithm == "NVLS":
            hops, across = 2 * levels, 2 * levels
        speed = min(part * protocol["share"] * rate, protocol["most"])
        return start + hops * inside + across * outside + sent * nbytes / speed

    def last_end(k, algorithm, protocol):
        slow = 1 - cluster["taken"][algorithm] / cluster["sms"]
        now = end = 0.0
        for first in range(0, len(grads), k):
            bucket = grads[first : first + k]
            work = sum(seconds for _, seconds in bucket)
            beside = min(work, max(0.0, end - now) * slow)  # while the wire is busy: no gaps there
            now += beside / slow + work - beside
            end = max(now, end) + call(sum(nbytes for nbytes, _ in bucket), algorithm, protocol)
        return end

    ways = [
        (k, algorithm, name)
        for k in range(1, len(grads) + 1)
        for name, protocol in cluster["protocols"].items()
        for algorithm in ("Ring", "Tree", "NVLS")
        if algorithm in protocol
    ]
    protocols = cluster["protocols"]
    seconds, way = min((last_end(k, a, protocols[p]), (k, a, p)) for k, a, p in ways)
    return (*way, seconds)
    # END SOLUTION


def normed(
    p_window, p_residual, p_gain,
    n, T, D, first, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as normed[(ceil(count / ROWS),)](…): a two-shot sum with a norm in it.

    window, float16 [n, T, D], is symmetric memory: window[j] is rank j's buffer of T tokens, with
    D numbers each, its summand. This rank has the tokens first to first + count - 1. It adds up
    these of all n ranks, and to them the residual, float32 [count, D], of its own tokens: in
    float32, in any order. All three tensors are contiguous. The sums replace the residual. Then
    sum / sqrt(mean of sum**2 over the D numbers + 1e-6) * gain, gain float32 [D], rounded to
    float16, replaces these tokens in the buffers of all n ranks. All other tokens are other ranks'
    business: they read and write them meanwhile.

    A program takes ROWS of the count tokens, the last one those that are left, and whole rows:
    COLUMNS is at least D. Both are powers of two; n, T, D and count are any numbers of at least 1.
    Load this rank's tokens once from each buffer, and store them once into each; load and store the
    residual once; load gain once in each program. Touch no memory beyond the tensors' ends. The
    grader adds triton.jit.
    """
    # BEGIN SOLUTION
    o_t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o_d = tl.arange(0, COLUMNS)
    m_d = o_d < D
    mask = (o_t < count)[:, None] & m_d[None, :]
    o_own = o_t[:, None] * D + o_d[None, :]
    p_token = p_window + first * D + o_own
    b_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    for j in range(n):
        b_sum += tl.load(p_token + j * T * D, mask=mask, other=0.0).to(tl.float32)
    b_sum += tl.load(p_residual + o_own, mask=mask, other=0.0)
    tl.store(p_residual + o_own, b_sum, mask=mask)
    b_root = tl.sqrt(tl.sum(b_sum * b_sum, 1) / D + 1e-6)
    b_y = b_sum / b_root[:, None] * tl.load(p_gain + o_d, mask=m_d, other=0.0)[None, :]
    for j in range(n):
        tl.store(p_token + j * T * D, b_y.to(tl.float16), mask=mask)
    # END SOLUTION
