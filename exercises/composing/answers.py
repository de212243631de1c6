"""Composing: five functions to write. README.md says what each has to reach.

The first four are plain Python. The last is run on real ranks: what it computes and sends is
counted.

The library's own plans and runs are closed while you are graded. Grade with
`weft grade composing`.
"""

from contextlib import suppress
from math import sqrt

with suppress(ImportError):  # the first four do without
    import torch


def crossed(order: str, sizes: dict, per_node: int, sent: dict) -> dict[tuple[int, int], int]:
    """The bytes that each node sends to each other one in a step: {(from, to): bytes}.

    order     "t", "c", "d" and "p" in any order: the axis whose digit turns fastest comes first
    sizes     of these four, and of "e"; there are t c d p ranks, and e divides c d
    per_node  ranks of a node, numbered node by node; the last one may have fewer
    sent      bytes, whole numbers, for each of the five

    Along t, c and d the ranks of a group stand in a ring: each sends sent[axis] to the next one,
    and the last to the first. Along p they stand in a row: each sends sent["p"] to the next stage,
    and the next one as much to it. e is no axis of its own. Of the ranks that differ in c and d
    alone, in the order of their numbers, the first e share the experts, then the next e, and so on;
    each of them sends sent["e"] to each of the others.

    Leave out pairs that send nothing, and what stays inside a node.

    With {"t": 2, "c": 1, "d": 2, "p": 2, "e": 2}, nodes of 4 ranks and {"t": 1000, "c": 0,
    "d": 100, "p": 10, "e": 1}, order "tcdp" gives {(0, 1): 40, (1, 0): 40}: four pairs of stages
    lie in two nodes. "pcdt" gives {(0, 1): 4000, (1, 0): 4000}: there it is the rings of t.
    """
    # Your code here.
    raise NotImplementedError


def undone(model: dict, run: dict, said: dict) -> tuple[float, float, float]:
    """Seconds of a step, MFU and HFU by one convention, from what somebody said by another.

    model  layers; width D, heads H, groups G of kv heads, key K numbers in a head; hidden F, and
           matrices, 2 or 3, of D x F in an MLP; words of the vocabulary, and padded, with which its
           matrices were made; tied, whether embedding and head are one matrix
    run    gpus, sequences of a step, tokens of a sequence, peak FLOP/s of a GPU, and what it
           recomputed: "none", "selective" or "full"
    said   one of four: "rate", FLOP/s of a GPU; "share" of a peak, which is said["peak"]; "tokens",
           of a GPU in a second; "hours", GPU-hours for 10**12 tokens. And how FLOPs were counted:
           "attention", "all", "causal" or "none"; "recompute", as above; "head", "words" or
           "padded"; "table", whether an embedding was counted as if it were a matmul, too

    A token takes 2 FLOPs in forward for each parameter of a matrix that it is multiplied with: in
    each layer q, k, v, the output's and the MLP's, and the head's of D times its words. Scores and
    values together take 4 H K for each pair of tokens, s pairs for each token, or half of them
    counted causal. Backward takes twice what forward takes. Selective recomputation takes scores
    and values of all layers once more, full recomputation all of the layers; never the head.
    Where the table is counted it is one matrix more, as large as the head that was counted, unless
    embedding and head are tied: then they are one matrix, which is the head's.

    MFU counts all pairs, the head's words without padding, no table, nothing recomputed; HFU counts
    what the run recomputed beside. Both are shares of the run's peak.

    MT-NLG, {"layers": 105, "width": 20480, "heads": 128, "groups": 128, "key": 160, "hidden":
    81920, "matrices": 2, "words": 50272, "padded": 51200, "tied": True}, on {"gpus": 2240,
    "sequences": 1920, "tokens": 2048, "peak": 312e12, "recompute": "full"}, with {"rate": 126e12,
    "attention": "all", "recompute": "full", "head": "padded", "table": False}: 59.97… s, MFU
    0.3030…, HFU 0.4038….
    """
    # Your code here.
    raise NotImplementedError


def layout(cluster: dict, model: dict, batch: int) -> tuple | None:
    """The layout with the shortest step that fits: (t, p, d, v, zero, bytes, seconds).

    cluster  gpus; node, GPUs of a node; of a GPU its memory in bytes, the rate in FLOP/s that it
             reaches, and the bytes/s of its links inside the node, and of its port, outside
    model    layers; layer and head, parameters of a layer and of the head; heads, width D, words;
             tokens s of a sequence; kept, bytes that a layer of one sequence keeps for backward
    batch    sequences; a microbatch is one of them

    All GPUs are used, t p d; t divides heads and node, d divides the batch. A rank of a pipeline
    has v stages, p v at most as many as layers; with v > 1, p is more than 1 and divides the
    microbatches. zero is 1 or 3. Ranks are numbered with t fastest, then d, then p.

    Time. A layer takes 6 s FLOPs for each of its parameters, and sends eight times (t - 1) / t of
    2 s D bytes inside the node, beside which nothing is computed. The head takes 6 s FLOPs for each
    parameter, and sends nothing. t divides all FLOPs. The last rank of a pipeline has the head and
    some layers, perhaps none; the others share the other layers, as evenly as can be, the first
    having the most. Layers are dealt so that the slowest rank is as fast as can be; of several such
    ways the one with the fewest layers on the last.

    What the slowest rank takes for a microbatch is S, and P are the parameters, divided by t, of
    the rank that has most of them. Of each message d ranks send (d - 1) / d, 2 bytes a parameter:
    inside if a node has all t d of them, else outside. ZeRO-1 scatters P gradients and gathers P
    weights once a step, beside the last microbatch; what is longer than S is waited for. ZeRO-3
    does the same for each microbatch, and gathers once more, for forward and for backward; so a
    microbatch takes the larger of S and these three, instead of S.

    To the microbatches come p - 1 more, divided by v, for the bubble. And each microbatch crosses
    between stages v times forward and v times backward, with 2 s D / t bytes, beside nothing:
    outside, if all GPUs are more than a node, else inside. With p = 1 nothing crosses.

    Memory is that of the fullest rank, the first or the last, t dividing all of it. A rank's
    parameters take 6 + 12 / d bytes each in ZeRO-1; in ZeRO-3 18 / d, and 2 for each parameter of
    the larger of layer and head, gathered. A rank's layers keep `kept` for as many microbatches as
    are in flight: on the first rank p, or all if they are fewer; on the last 1. With v > 1 they are
    (p v + p - 1) / v and ((v - 1) p + 1) / v. The rank with the head has 4 s bytes a word, too. It
    has to fit into nine tenths.

    Of equally short steps return any; None if nothing fits. GPT-3 on {"gpus": 1024, "node": 8,
    "memory": 80e9, "rate": 156e12, "inside": 300e9, "outside": 25e9}: {"layers": 96, "layer":
    1812099072, "head": 629145600, "heads": 96, "width": 12288, "words": 51200, "tokens": 2048,
    "kept": 855638016}, 1536 sequences: (4, 8, 32, 8, 1, 57437756928.0, 22.92…).
    """
    # Your code here.
    raise NotImplementedError


def rhythm(runs: list, hours: float, share: float, costs: dict) -> tuple | None:
    """The run that gets furthest in a day, and how often it keeps its state: (i, a, k, steps).

    runs    (GPUs, seconds of a step) of each that could be started
    hours   GPU-hours between failures: one GPU fails once in so many hours, and one stops all
    share   of the failures, at least 0 and less than 1, after which a copy can still be read
    costs   seconds: "copy", of a copy to another node's memory; "write", of a write of that copy to
            storage, beside; "near" and "far", of a restart from a copy and from storage

    Every a steps the run stops for a copy, and with every k-th copy for a write, too; a and k are
    whole numbers from 1, k at most 100. A failure comes at any moment. If copies can still be read,
    it costs half of the steps between copies, and a restart from one; else half of those between
    writes, and a restart from storage. The share of time that is lost is, as on the page, a sum:
    the seconds of copies and writes over those of the steps between them, and the seconds that a
    failure costs, on average, over the mean time between failures of the run.

    Return the run's place in the list, a, k, and steps of a day of 86,400 s, with the most of them;
    of equal ones any. None if every run loses all of its time.

    rhythm([(16384, 5.0)], 50676.0, 0.0, {"copy": 60, "write": 0, "near": 0, "far": 600}) is
    (0, 231, 1, 14554.99…): a copy each 19 minutes.
    """
    # Your code here.
    raise NotImplementedError


def clipped(grads: list, cut: list, tied: int | None, tokens: int, limit: float, sizes: dict, wire):
    """This rank's shards of the mean gradient, clipped by the norm of everything.

    A rank has a place on four axes: p, stages; t, ranks that share matrices; r, copies of what is
    sharded; and s, the shards. sizes has their lengths, {"p": 1, "t": 2, "r": 1, "s": 2}.

    grads   for each parameter of the rank's stage the sum, over the tokens that the rank has seen,
            of their gradients, float64, of any shape
    cut     for each whether the parameter is one of the rank's own part of a matrix. If not, all
            ranks of t have the same parameter whole, and each the gradient of its own part of the
            tokens alone, as sequence parallelism makes it
    tied    the place of the embedding, which first and last stage both have: it is one parameter,
            and its gradient the sum of both. None with one stage; there are at most two
    tokens  of the batch that this rank's pipeline and its t ranks share; ranks that differ in r or
            s have others, and perhaps more of them

    The mean is over all tokens of the batch. Its norm is over all parameters of the model, each
    counted once, however many ranks have it. If it is above limit, the mean is multiplied by
    limit / norm. Return for each gradient this rank's shard of the result: made flat and padded
    with zeros to a multiple of s, it is cut into s parts, and the rank has the one of its place.

    wire.scatter(x, "s") gives this rank's part of the sum of x over an axis, in order; x has one
    dimension, which the length of the axis divides. wire.sum(x, "rt") gives the sum over all ranks
    that differ in these axes alone, any of p, t, r and s. All ranks make the same calls; ranks of a
    sum give as many numbers. Stages have equally many parameters, cut alike, of other shapes.

    Write into none of grads. Sent bytes: README.md.
    """
    # Your code here.
    raise NotImplementedError
