"""Pipeline parallelism: five functions to write. README.md says what each has to reach.

A schedule is a list with one row per rank; a row lists that rank's actions in order, each as
(kind, microbatch, stage). `Action("F", 0, 2)` from weft.plan.pipeline is such a triple, and so is
the plain tuple ("F", 0, 2). README.md shows how to play and draw your rows while you work.

The library's own schedules are closed while you are graded. Grade with `weft grade pipeline`.
"""

from contextlib import suppress

from weft.plan.pipeline import Action, Plan, looped
from weft.plan.simulate import Deadlock, simulate

with suppress(ImportError):  # the first four do without
    import torch


def eager(f: int, bw: int, hops: list[int], m: int) -> list[list[Action]]:
    """The rows of a 1F1B that no message holds up, however slow: kinds F and BW.

    There are p = len(hops) + 1 ranks with a stage each. A forward takes f microseconds and a whole
    backward bw, on all of them; a message between stages s and s + 1, either way, hops[s], since
    some neighbours share a node and others don't. All are whole numbers. Messages travel by
    themselves, any number at a time.

    The last stage must work without a pause once it has begun: a step takes
    (m + p - 1)(f + bw) + 2 sum(hops), whatever m is.

    No stage may keep more microbatches alive than that takes. To be exact: think of orders in which
    each stage keeps a number of its own alive, the same for every m (or all m, if these are fewer),
    until its last F. Of all such orders that are never held up, none has a stage with fewer than
    you may have there.

    With f=2, bw=4, hops=[1, 4, 1] and m=8, a step takes 78 microseconds, where plain 1F1B takes
    104, and the stages may keep 8, 6, 3 and 1 alive.
    """
    # Your code here.
    raise NotImplementedError


def flexible(p: int, m: int, v: int) -> list[list[Action]]:
    """The rows of interleaved 1F1B for any m: rank r holds stages r, r + p, ..., r + (v - 1) p.

    The kinds are F and BW, and messages take no time. A microbatch takes each thin stage f forward
    and b + w backward; the step must take (v m + p - 1)(f + b + w), for any m from p on, whether p
    divides it or not. With fewer microbatches than ranks it is (v p + m - 1)(f + b + w).

    Memory must not grow with m. Microbatches go in groups of at least p each, which need not be
    alike. With g for the size of the largest, deal them so that g is as small as it can be; with
    fewer microbatches than ranks they are one group, g = m. Then rank r may hold at most
    (v - 1) g + min(m, p - r) activations of thin stages, each from its F to its BW.

    At p = 3, m = 8, v = 2 and f = b = w = 1 the makespan is 54, with 7, 6, 5 activations.
    """
    # Your code here.
    raise NotImplementedError


def cut(cluster: dict, model: dict, batch: int) -> tuple[int, list[int], list[int], float] | None:
    """The pipeline with the shortest step: (p, layers of each rank, recomputed ones, seconds).

    cluster  nodes; of a node its memory in bytes, and the rate in FLOP/s that its GPUs reach
             together. Tensor parallelism inside makes a node one rank
    model    layers, and the parameters of a layer; table, those of the embedding, as many as the
             head's, which is a matrix of its own; width D; words; T tokens of a sequence; kept,
             bytes that a layer keeps for the backward of one sequence, its input among them
    batch    sequences; a microbatch is one of them

    p divides the nodes; d = nodes / p pipelines share the batch evenly, m microbatches for each.
    Every rank has at least one layer, the first the embedding, too, and the last the head. Of its
    layers a rank may recompute any number.

    Time. A rank takes for a microbatch 6 T FLOPs for each parameter of its layers, 2 T more for
    each parameter of those that it recomputes, and the last 6 T for each of the head. All else
    takes none. A step is m + p - 1 times what the slowest rank takes for a microbatch.

    Memory, 1F1B with ZeRO-1. A parameter takes 6 + 12 / d bytes. Rank s, counted from 0, keeps
    min(m, p - s) microbatches: of each, 2 T D bytes for a layer that it recomputes, which is its
    input, and `kept` for another one. Whoever recomputes any needs kept - 2 T D once more, for the
    one whose backward runs. The last rank has 6 bytes for each word and token of one microbatch.
    All that has to fit into nine tenths of a node's memory.

    Of equally short steps return any; None if nothing fits. Llama 3 405B, {"layers": 126, "layer":
    3187703808, "table": 2101346304, "width": 16384, "words": 128256, "tokens": 8192, "kept":
    4261412864}, on {"nodes": 256, "memory": 640e9, "rate": 3957.6e12}, nodes of eight H100 at
    half of their peak, with 512 sequences: (8, [14, 15, 15, 15, 16, 17, 17, 17],
    [7, 7, 5, 3, 2, 0, 0, 0], 16.08...) is one.
    """
    # Your code here.
    raise NotImplementedError


def unequal(f: list[float], bw: list[float], m: int, limit: list[int]) -> list[list[Action]]:
    """Rows for stages that take different times, on ranks with room for different numbers.

    One stage per rank: stage s takes f[s] for a forward and bw[s] for a whole backward (BW), and
    may hold at most limit[s] microbatches. Kinds F and BW. The step must be no longer than with
    the best order in which each stage keeps some fixed number of microbatches alive (up to its
    limit) until the last F. At f = 1, 1, 3, bw = 3, 6, 2, m = 4 and limit 4, 3, 2 that is 35.
    To change one stage's number at a time is not enough: others may have to change with it.
    """
    # Your code here.
    raise NotImplementedError


def run_row(row, stages, inputs, targets, loss, send, receive) -> float:
    """Run one rank's row, with split backwards, on real tensors; return its part of the loss.

    row: this rank's actions (kind, microbatch, stage) in order, with every message: kinds F, B, W,
        and SEND_F, RECV_F, SEND_B, RECV_B, which carry an output to the next stage and the
        gradient of a stage's input to the one before. A stage of a SEND made the tensor, the
        stage of a RECV needs it.
    stages: {stage: module}, the stages of this rank, which may be several. stages[s].weights() is
        the list of a stage's parameters, whose .grad is None when you begin.
    inputs, targets: the m microbatches, tensors [rows, width] with different numbers of rows; every
        rank has them all. Stage 0 reads inputs, the last stage reads targets. Which one is last
        the row tells: the rank's highest stage, if the row has no SEND_F of it.
    loss(output, target): a scalar, the mean over the rows of one microbatch. The step's loss is the
        mean over all rows of the batch, each of which counts the same.
    send(action, tensor), receive(action) -> tensor: call them once for each message in the row,
        with its triple, in the row's order. All tensors are float64. A send does not wait.

    F runs a stage forward, once for each microbatch. B makes the gradient of the stage's input, and
    no weight gradient; stage 0 has no use for one, and B makes nothing there. W makes the gradients
    of the stage's parameters, once, and nothing of its input. Each happens in its action's place.

    Two neighbouring stages on one rank need no message. Leave the gradients of the step's loss in
    the parameters' .grad, and return, as a float, the sum of what the microbatches that end here
    add to it (0.0 on a rank without the last stage). Send nothing beyond the row's messages, and
    keep no more microbatches alive, from F to W, than the plan does, plus the one just being freed.
    That goes for what has come and been made, too, and not for graphs alone.
    """
    # Your code here.
    raise NotImplementedError
