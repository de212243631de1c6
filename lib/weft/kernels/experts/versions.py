"""The experts' MLP before it was fused: a loop, a padded batch, and copies in the experts' order.

Each has the arguments of `mlp` and computes the same. What they cost beside it: the first waits for
the host and launches for each expert, the second multiplies rows of zeros, the third writes every
row once more than it is used; and none weights and sums what it has made in one pass.
"""

import torch
from torch import Tensor

from weft.kernels.experts.face import by_expert, grouped_matmul, mlp
from weft.kernels.experts.launch import kernel_type
from weft.plan.arguments import whole
from weft.plan.experts import check_mlp


def looped(
    x: Tensor,
    expert: Tensor,
    weight: Tensor,
    kept: Tensor,
    up: Tensor,
    down: Tensor,
) -> Tensor:
    """`mlp` as a loop of torch's matmuls, for whose sizes the host has to wait."""
    check_mlp(x, expert, weight, kept, up, down)
    order, sizes = by_expert(expert, kept, len(up))
    counts = sizes.tolist()
    order, rows = order[: sum(counts)], []
    for e, choices in enumerate(order.split(counts)):
        rows.append((x[choices // expert.shape[1]] @ up[e]).relu() @ down[e])
    made = x.new_zeros(expert.numel(), x.shape[1])
    return combine(made.index_copy(0, order, torch.cat(rows)), weight, x)


def padded(
    x: Tensor,
    expert: Tensor,
    weight: Tensor,
    kept: Tensor,
    up: Tensor,
    down: Tensor,
    capacity: int | None = None,
) -> Tensor:
    """`mlp` as two batched matmuls of `capacity` rows for each expert, 0 where few.

    An expert takes its first `capacity` choices, and the others add 0. None is as
    many as the fullest expert has, for which the host waits.
    """
    check_mlp(x, expert, weight, kept, up, down)
    E, (T, k) = len(up), expert.shape
    order, sizes = by_expert(expert, kept, E)
    C = sizes.max().item() if capacity is None else whole("capacity", capacity, 0)
    C = min(C, T * k)
    first = sizes.cumsum(0) - sizes
    whither = expert.flatten()[order]
    place = torch.arange(T * k, device=x.device) - first[whither]
    fits = kept.flatten()[order] & (place < C)
    slot = torch.where(fits, whither * C + place, E * C)  # the last is thrown away
    token = torch.full((E * C + 1,), T, device=x.device)  # row T of x is 0
    token = token.index_copy(0, slot, order // k)[:-1]
    batch = torch.cat([x, x.new_zeros(1, x.shape[1])])[token].unflatten(0, (E, C))
    rows = torch.bmm(torch.bmm(batch, up).relu(), down).flatten(0, 1)
    rows = torch.cat([rows, rows.new_zeros(1, x.shape[1])])
    slot = torch.empty_like(slot).index_copy(0, order, slot)  # by choice
    return combine(rows[slot], weight, x)


def permuted(
    x: Tensor,
    expert: Tensor,
    weight: Tensor,
    kept: Tensor,
    up: Tensor,
    down: Tensor,
) -> Tensor:
    """`mlp` as two grouped matmuls of rows, copied by expert and back."""
    check_mlp(x, expert, weight, kept, up, down)
    kernel_type(x)
    order, sizes = by_expert(expert, kept, len(up))
    hidden = grouped_matmul(x[order // expert.shape[1]], up, sizes).relu()
    rows = grouped_matmul(hidden, down, sizes)
    return combine(torch.empty_like(rows).index_copy(0, order, rows), weight, x)


def combine(made: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """The weighted sum over a token's choices of what was made, [tokens k, D]."""
    made = made.unflatten(0, (-1, weight.shape[1]))
    return (made * weight.unsqueeze(-1)).sum(1).to(x.dtype)


VERSIONS = {"looped": looped, "padded": padded, "permuted": permuted, "fused": mlp}
