"""What is not hidden of the messages between stages, and between copies of them."""

from weft.plan.collectives import seconds
from weft.plan.composing.cluster import Cluster
from weft.plan.composing.layers import SIZE, SUM
from weft.plan.composing.layout import Layout
from weft.plan.composing.stages import Stages
from weft.plan.composing.ways import hop, way
from weft.plan.shape import ModelShape
from weft.plan.zero import calls


def hops(layout: Layout, m: int, hidden: bool = True) -> float:
    """How many hops from stage to stage are waited for in a step, where each is short.

    1F1B pays 2 (p - 1) / p with every microbatch, as plan.pipeline.microbatch_time has it; the
    others on the way in and out alone, and the interleaved one at every stage if nothing hides
    its messages. A test holds them to the simulation.

    >>> hops(Layout(p=4), m=16), hops(Layout(p=4, v=2), m=16), hops(Layout(p=4, v=2), 16, False)
    (28.5, 14, 74)
    """
    p, v = layout.p, layout.v
    return {
        "gpipe": 2 * (p - 1),
        "one_f_one_b": 2 * (p - 1) * (1 + (m - 1) / p),
        "interleaved": 2 * (p * v - 1) + (0 if hidden else 2 * v * (m - 1)),
        "zb_h1": 4 * (p - 1),
        "zb_h2": p - 1,
        "zb_v": 2 * (2 * p - 1),
        "dualpipe_v": 4 * (p - 1),
    }[layout.schedule]


def hop_seconds(shape: ModelShape, layout: Layout, cluster: Cluster) -> float:
    """A microbatch's activations from one stage to the next: each tensor rank sends its part.

    Without sequence parallelism the t parts are gathered where they come in.
    """
    t, c = layout.t, layout.c
    nbytes = layout.microbatch * shape.seq // c * shape.width * SIZE
    link = hop(cluster, layout.p, t * c * layout.d)
    taken = link.latency + nbytes / t / link.bandwidth
    if t > 1 and not layout.sequence_parallel:
        taken += seconds("all_gather", nbytes, t, way(cluster, t, 1).link)
    return taken


def data_seconds(
    shape: ModelShape,
    layout: Layout,
    cluster: Cluster,
    m: int,
    params: int,
    experts: int,
    stages: Stages,
) -> float:
    """What is not hidden of the gradients' and weights' messages, a layer's at a time.

    They are those of plan.zero.calls. Gradients travel while layers before theirs are in backward,
    weights while such are in forward; under stages 2 and 3 with every microbatch, since there is
    no room for whole gradients. Pipelines that are said to have stage 2, PyTorch's, have that room
    and send them once: they are stage 1 here, in bytes and in time. What comes of
    one layer at the end of a pass has nothing beside it. `params` are what a rank has before ZeRO
    of all but experts, which d c ranks have, `experts` what d c / e have.
    """
    over = layout.d * layout.c
    total = 0.0
    groups = (params, over, layout.t), (experts, over // layout.e, layout.t * layout.e)
    for count, n, apart in groups:
        if n == 1 or not count:
            continue
        k = -(-shape.layers // layout.p)
        share = count / (params + experts) / k
        through = way(cluster, n, apart)
        computing = {
            "forward": stages.slowest.forward * share,
            "backward": (stages.slowest.inputs + stages.slowest.weights) * share,
        }
        taken, often = dict.fromkeys(computing, 0.0), dict.fromkeys(computing, k)
        for call in calls(layout.zero):
            nbytes = count / k * (SUM if call.what == "gradients" else SIZE)
            beside = "backward" if call.when == "backward" else "forward"
            taken[beside] += seconds(call.op, nbytes, n, through.link)
            if layout.zero == 3 or (layout.zero == 2 and beside == "backward"):
                often[beside] = m * k
        hides = layout.zero > 1 or "data" in cluster.runs.hides
        for beside, each in taken.items():
            free = computing[beside] if hides else 0.0
            total += waited(each, free, often[beside], through.taken)
    return total


def waited(each: float, beside: float, often: int, taken: float = 0.0) -> float:
    """Seconds of `often` messages that are waited for, where all but one have computing beside.

    Those that are hidden make it slower by the share of the chip that is `taken`. For equal buckets
    it is plan.zero's `exposed`.

    >>> waited(each=2.0, beside=1.5, often=4), waited(2.0, 3.0, 4)
    (3.5, 2.0)
    """
    hidden = (often - 1) * min(each, beside)
    return often * each - hidden * (1 - taken)
