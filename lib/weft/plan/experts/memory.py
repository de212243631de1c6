"""Bytes of the experts' states on a rank, over expert, tensor and data ranks."""

from weft.plan.arguments import amounts, sizes, total


def expert_states(
    params: float,
    e: int,
    replicas: int = 1,
    t: int = 1,
    weight: float = 2,
    gradient: float = 2,
    optimizer: float = 12,
) -> float:
    """Bytes that a rank keeps of `params` parameters in experts.

    Weights and gradients are divided by the e expert ranks and by the t tensor ranks of the
    experts; the optimizer's state further by the `replicas`, the ranks with the same experts.

    >>> f"{expert_states(654e9, e=64) / 1e9:.0f} GB"
    '164 GB'
    """
    params, (e, replicas, t) = total("params", params), sizes(e=e, replicas=replicas, t=t)
    amounts(weight=weight, gradient=gradient, optimizer=optimizer)
    return params * (weight + gradient + optimizer / replicas) / (e * t)
