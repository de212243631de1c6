"""What hybrid sharding, FSDP2's switches and ZeRO++ do to the bytes that a rank keeps and sends.

Ranks form a mesh of two axes: `shards` ranks have the parameters once between them, and there are
`replicas` groups like that. With one replica that is ZeRO's stage 3. Shards are taken to be even,
and every collective to be a ring.
"""

from typing import NamedTuple

from weft.plan.arguments import plain, sizes, total


class MeshBytes(NamedTuple):
    """Bytes of one rank: states and what is `whole` for a time are kept, the rest is sent."""

    states: float
    whole: float
    gathered: float
    reduced: float
    replicated: float

    @property
    def kept(self) -> float:
        """What there is beside activations and the units at work."""
        return self.states + self.whole

    @property
    def sent(self) -> float:
        """All that the rank sends in a step."""
        return self.gathered + self.reduced + self.replicated


def fsdp2(
    params: float,
    shards: int,
    replicas: int = 1,
    microbatches: int = 1,
    reshard_after_forward: bool | int = True,
    reshard_after_backward: bool = True,
    gradient_sync: bool = True,
    all_reduce: bool = True,
    param: int = 2,
    reduce: int = 4,
    kept: int = 16,
) -> MeshBytes:
    """Bytes of a rank under torch's fully_shard on a mesh of replicas times shards, by step.

    The switches are FSDP2's. `reshard_after_forward` frees weights between forward and backward,
    or, as a number, shards them over so many ranks meanwhile. The other three say what happens
    after a microbatch that is not the step's last: set_reshard_after_backward, whether weights
    are freed; set_requires_gradient_sync, whether gradients are reduced; set_requires_all_reduce,
    whether replicas average then. `param` and `reduce` are the bytes of a number in the policy's
    param_dtype and reduce_dtype, `kept` those of a parameter's states: in fp32 weight, gradient and
    Adam. While replicas wait to average, a shard's sum takes the gradient's place in `kept`:
    fully_shard sets `.grad` at the last microbatch. The root unit, which by default is not
    resharded after forward, counts as the others do.

    >>> fsdp2(1e6, shards=8).sent / 1e6, fsdp2(1e6, 8, reshard_after_forward=False).sent / 1e6
    (7.0, 5.25)
    """
    params = total("params", params)
    shards, replicas, m = sizes(shards=shards, replicas=replicas, microbatches=microbatches)
    param, reduce, kept = sizes(param=param, reduce=reduce, kept=kept)
    between = _between(reshard_after_forward, shards)  # over how many ranks weights are then
    weights, gradients = params * param, params * reduce
    forward = (m if reshard_after_backward else 1) * _half(weights, shards)
    backward = m * _half(weights, between)
    syncs = m if gradient_sync else 1
    whole = 0.0 if between == shards else weights / between
    if m > 1:
        whole = whole if reshard_after_backward else weights
        whole += 0 if gradient_sync else gradients
    return MeshBytes(
        states=params * kept / shards,
        whole=whole,
        gathered=forward + backward,
        reduced=syncs * _half(gradients, shards),
        replicated=(syncs if all_reduce else 1) * 2 * _half(gradients / shards, replicas),
    )


def crossing(
    params: float,
    nodes: int,
    node: int = 8,
    microbatches: int = 1,
    qwz: bool = False,
    hpz: bool = False,
    qgz: bool = False,
) -> float:
    """Bytes that leave a node through each of its `node` ports in a step of stage 3, or ZeRO++.

    Rings through all ranks, one for each port, cross from node to node once. Weights and
    gradients have 16 bits. `qwz` sends weights in 8; `hpz` keeps a second copy of them, sharded
    inside each node, from which backward gathers; `qgz` reduces gradients inside the node and
    sends them in 4 bits to where they are kept, all-to-all. Scales of quantized blocks are not
    counted. Wang et al. 2023, whose count leaves out that a rank has its own shard already.

    >>> round(crossing(1e9, 48) / crossing(1e9, 48, qwz=True, hpz=True, qgz=True), 1)
    4.0
    """
    params = total("params", params)
    nodes, node, m = sizes(nodes=nodes, node=node, microbatches=microbatches)
    if nodes == 1:
        return 0.0
    ring = _half(2 * params, nodes * node)
    weights = (0.5 if qwz else 1) * (1 if hpz else 2) * ring
    return m * (weights + (0.25 * _half(2 * params, nodes) if qgz else ring)) / node


def _between(reshard_after_forward: bool | int, shards: int) -> int:
    """Over how many ranks weights are sharded between forward and backward."""
    given = plain(reshard_after_forward)
    if isinstance(given, bool):
        return shards if given else 1
    if not isinstance(given, int) or not 1 < given < shards or shards % given:
        told = f"reshard_after_forward is {given!r}"
        raise ValueError(f"{told}, must be True, False or a divisor of {shards} between 1 and it")
    return given


def _half(nbytes: float, n: int) -> float:
    """What a rank sends in an all-gather or a reduce-scatter of so many bytes."""
    return nbytes * (n - 1) / n
