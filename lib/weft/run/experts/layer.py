"""The layer of experts over ranks: counts first, then tokens, and what was made of them back."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from weft.nn.experts import Routed, SwitchMLP, in_turn, scored, weighed
from weft.plan.arguments import instance
from weft.plan.experts import capacity
from weft.plan.tensors import dtype_of, tensor
from weft.ref.experts import Routes, route
from weft.run.collectives import Group, agreed, group_rank_size
from weft.run.digest import digest
from weft.run.experts.exchange import Arrive, Depart, Journey

Beside = TypeVar("Beside")


class ExpertParallel(nn.Module):
    """A SwitchMLP whose experts lie over the e ranks of a group, each with tokens of its own.

    Every rank has the router, and rank r tensor_split's r-th part of the experts, which may be
    none. A rank sends a token to the rank of each of its experts, which sends back what the expert
    makes of it; at home that is weighed, once, and added up: [.., D] to [.., D], the whole's
    numbers on these tokens. Any rank may have any number of tokens, none too. What is sent is
    weft.plan.experts.sent, and as much in backward, where a dispatch's gradients come by a
    combine, and a combine's by a dispatch.

    Capacity is local: of a rank's own T tokens an expert takes the first ceil(k T factor / E)
    choices, as weft.ref.experts.switch does with these tokens alone. So who is dropped is known
    before anything is sent and depends on no other rank; an expert is given at most the sum over
    ranks. The price is that one rank drops where another leaves room. `factor` is mlp's own where
    it is None; nothing is dropped where both are.

    `mlp` is a whole one, its router the same on every rank, and is left as it was. `routed` has
    this rank's scores and routes of the last call, and the choices of all; `kept` [e, E] how many
    of each rank's went to each expert. Every rank calls it as often, and runs backward as often;
    who averages which gradients, `reduce_gradients` says. ValueError, on all ranks, names what
    does not fit.
    """

    def __init__(self, mlp: SwitchMLP, world: Group, factor: float | None = None):
        super().__init__()
        self.group, self.rank, self.n = group_rank_size(world)
        agreed(self.group, lambda: (None, _form(mlp, factor)))
        self.k, self.kernel, self.total = mlp.k, mlp.kernel, len(mlp.up)
        self.factor = mlp.factor if factor is None else factor
        self.router = nn.Parameter(mlp.router.detach().clone())
        mine = (x.detach().tensor_split(self.n)[self.rank].clone() for x in (mlp.up, mlp.down))
        self.up, self.down = map(nn.Parameter, mine)  # [E/e, D, F], [E/e, F, D]
        self.register_buffer("bias", None if mlp.bias is None else mlp.bias.clone())
        self.routed: Routed | None = None
        self.kept: Tensor | None = None

    @property
    def shares(self) -> list[int]:
        """How many experts each rank has."""
        return [len(part) for part in torch.empty(self.total).tensor_split(self.n)]

    def forward(
        self, x: Tensor, beside: Callable[[], Beside] | None = None
    ) -> Tensor | tuple[Tensor, Beside]:
        """What `beside` returns, which is called while tokens travel, is a second result.

        It may be a shared expert, or the work of another microbatch. Its backward is run while
        gradients travel.
        """
        routes = self._routed(x, beside)
        by_rank = self.kept.split(self.shares, 1)  # choices of each rank for each rank's experts
        send = [counts[self.rank].sum().item() for counts in by_rank]
        receive = by_rank[self.rank].sum(1).tolist()
        dispatch = Journey(self.group, send, receive)
        combine = Journey(self.group, receive, send)

        whither = torch.where(routes.kept, routes.expert, self.total).flatten()
        order = whither.argsort(stable=True)[: sum(send)]  # kept choices, by expert
        token = order // self.k
        rows = x.reshape(-1, x.shape[-1])
        coming = Depart.apply(rows.index_select(0, token), dispatch)
        found = beside() if beside else None
        made = self._made(Arrive.apply(coming, dispatch), by_rank[self.rank])
        made = Arrive.apply(Depart.apply(made, combine), combine)
        y = weighed(made, order, routes.weight).to(x.dtype).view_as(x)
        return (y, found) if beside else y

    def _routed(self, x: Tensor, beside: object) -> Routes:
        """Route this rank's tokens, and tell the other ranks how many go to each expert."""
        routed: Routed | None = None

        def mine() -> tuple[list[list[int]], dict[str, Any]]:
            nonlocal routed
            self._check(x, beside)
            scores = scored(x.reshape(-1, x.shape[-1]), self.router)
            if not scores.isfinite().all():
                raise ValueError("x has tokens whose scores are NaN or infinite, must have none")
            T, E = scores.shape
            most = None if self.factor is None else capacity(T, E, self.factor, self.k)
            routes = route(scores, self.k, most, self.bias)
            choices = routes.expert.flatten().bincount(minlength=E)
            routed = Routed(scores, routes, choices)
            kept = choices if most is None else choices.clamp(max=most)
            trained = [weight.requires_grad for weight in self.parameters()]
            alike = {"whether gradients are taken": torch.is_grad_enabled()}
            alike |= {"x's requires_grad": x.requires_grad, "mlp's requires_grad": trained}
            return [choices.tolist(), kept.tolist()], alike

        told = torch.tensor(agreed(self.group, mine))  # [e, 2, E]
        self.routed = routed._replace(choices=told[:, 0].sum(0).to(x.device))
        self.kept = told[:, 1]
        return routed.routes

    def _check(self, x: Tensor, beside: object) -> None:
        if beside is not None and not callable(beside):
            raise ValueError(f"beside is {beside!r}, must be a function or None")
        shape = (*getattr(x, "shape", ())[:-1], len(self.router))
        kind = {"dtypes": (dtype_of(self.up),), "beside": ("mlp", self.up)}
        tensor("x", x, "[.., D] of mlp", shape, **kind)

    def _made(self, rows: Tensor, counts: Tensor) -> Tensor:
        """What this rank's experts make of rows that came by rank, and from each by expert."""
        e, mine = counts.shape
        if not mine:  # no row has come; its gradients travel none the less
            return rows + self.up.sum() + self.down.sum()
        expert = torch.arange(mine).repeat(e).repeat_interleave(counts.flatten())
        expert = expert.to(rows.device)
        if self.kernel is None:
            order = expert.argsort(stable=True)
            rows = rows.index_select(0, order)
            made = in_turn(rows, counts.sum(0).tolist(), self.up, self.down)
            return made.index_select(0, order.argsort())
        kept = torch.ones_like(expert, dtype=torch.bool).unsqueeze(-1)
        weight = kept.to(torch.promote_types(rows.dtype, torch.float32))
        return self.kernel(rows, expert.unsqueeze(-1), weight, kept, self.up, self.down)


def _form(mlp: SwitchMLP, factor: float | None) -> dict[str, Any]:
    """What must be the same of a layer on every rank."""
    instance(SwitchMLP, mlp=mlp)
    E, D, F = mlp.up.shape
    if factor is not None:
        capacity(0, E, factor, mlp.k)  # refuses what is none
    form = {"width": D, "hidden": F, "experts": E, "k": mlp.k, "mlp's dtype": dtype_of(mlp.up)}
    form |= {"factor": mlp.factor if factor is None else factor}
    router = mlp.router.detach().cpu().contiguous().view(torch.uint8)
    return form | {"the digest of mlp's router": digest(memoryview(router.numpy()))}
