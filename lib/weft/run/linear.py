"""Attention with a state over ranks, each with a part of the tokens, in the ranks' order.

Outputs and state are affine in the state before a rank's tokens:

    o = o_0 + R S        S -> A S + B

o_0, R, A and B depend on these tokens alone, so all ranks find theirs at once, o_0 and B by
starting from zeros. Then the state goes through the ranks, and each adds R S. What is sent is a
state, however long the sequence is (weft.plan.linear.sent).
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from weft.nn.linear import mix
from weft.plan.arguments import chosen
from weft.plan.linear import METHODS, StateSizes, check, check_per_token, check_state
from weft.ref.linear.layout import inside
from weft.run.collectives import Group, all_gather, group_rank_size

Kernel = Callable[..., Any]
Place = tuple[dist.ProcessGroup, int, int]  # a group, this process's rank in it, and its size


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    world: Group,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
    method: str = "scan",
    initial: Tensor | None = None,
    final: bool = False,
    kernel: Kernel | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """This rank's rows of o, from this rank's tokens and the state that the ranks before it leave.

    q, k [B, T, H, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K] and beta [B, T, H] are
    a rank's own part, of at least one token; T may differ between ranks. Which arguments are
    given chooses the rule: weft.ref.linear's plain one (without features and normaliser, which
    are another column of v), `gated` with a decay, `delta` with beta. `kernel` is any function
    with the face of that rule's `chunked`.

    `initial` [B, H, K, V] is the state before the first token of all, given on rank 0 alone;
    with `final` comes the state after this rank's last token. `method` "scan" hands the state
    from rank to rank, "gather" tells everybody's A and B to all.

    Differentiable: then k, or another argument but q, requires its gradient on every rank, and
    every rank runs backward. Live besides what `kernel` needs are copies of this rank's q and o
    and some states, with "gather" n of them; with beta `kernel` runs on K more columns of v.
    ValueError names an argument that does not fit.
    """
    place = group_rank_size(world)
    chosen("method", method, METHODS)
    if kernel is not None and not callable(kernel):
        raise ValueError(f"kernel is {kernel!r}, must be a function or None")
    sizes = _checked(q, k, v, log_decay, beta)
    if not sizes.T:
        raise ValueError("q has 0 tokens, must have at least one on every rank")
    _, rank, n = place
    if initial is not None:
        check_state("initial", initial, "[B, H, K, V]", (sizes.B, sizes.H, sizes.K, sizes.V), q)
        if rank:
            raise ValueError(f"initial is given on rank {rank}, must be given on rank 0 alone")
    if n == 1:
        return mix(q, k, v, log_decay, beta, initial, final, kernel)
    o, R, A, B = _from_zeros(q, k, v, log_decay, beta, kernel)
    sends = B if initial is None else _faded(A, initial) + B
    S = {"scan": _Scan, "gather": _Gather}[method].apply(A, sends, place)
    S = S if initial is None else S + initial  # on rank 0, where zeros arrived
    o = (o + (R @ S).transpose(1, 2)).to(v.dtype)
    return (o, _faded(A, S) + B) if final else o


def _checked(q, k, v, log_decay, beta) -> StateSizes:
    sizes = check(q, k, v)
    if beta is not None:
        check_per_token("beta", beta, q, least=0.0, most=2.0)
    if log_decay is not None:
        check_per_token("log_decay", log_decay, q, per_channel=beta is None)
    return sizes


# --- what a rank finds by itself ------------------------------------------------------------------


def _from_zeros(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    beta: Tensor | None,
    kernel: Kernel | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """o_0 [B, T, H, V], R [B, H, T, K], A and B [B, H, K, V].

    A is None (nothing fades), [B, H, 1, 1] (a decay for each head), [B, H, K, 1] (for each
    channel) or [B, H, K, K] (the delta rule).
    """
    if beta is not None:
        return _delta_from_zeros(q, k, v, log_decay, beta, kernel)
    o, B = mix(q, k, v, log_decay, final=True, kernel=kernel)
    if log_decay is None:
        return o, *inside(q), None, B
    Q, g = inside(q, log_decay if log_decay.dim() == 4 else log_decay.unsqueeze(-1))
    begun = g.cumsum(2).exp()  # what is left of the state at each token
    return o, Q * begun, begun[:, :, -1].unsqueeze(-1), B


def _delta_from_zeros(q, k, v, log_decay, beta, kernel) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in one pass: K more columns begin as the identity, and zeros are written there."""
    columns = v.shape[-1], k.shape[-1]
    wide = torch.promote_types(k.dtype, torch.float32)
    identity = torch.eye(columns[1], dtype=wide, device=k.device)
    begin = pad(identity.expand(k.shape[0], k.shape[2], -1, -1), (columns[0], 0))
    both, end = mix(q, k, pad(v, (0, columns[1])), log_decay, beta, begin, True, kernel)
    (o, R), (B, A) = both.split(columns, -1), end.split(columns, -1)
    return o, *inside(R), A.contiguous(), B.contiguous()


def _faded(A: Tensor | None, S: Tensor) -> Tensor:
    """A S."""
    if A is None:
        return S
    return A * S if A.shape[-1] == 1 else A @ S


def _unfaded(A: Tensor | None, G: Tensor) -> Tensor:
    """A^T G: of the gradient behind some tokens what reaches the state before them."""
    return _faded(A if A is None or A.shape[-1] == 1 else A.mT, G)


def _gradients(A: Tensor | None, S: Tensor, G: Tensor) -> tuple[Tensor | None, Tensor, None]:
    """Of A and B, from the state before a rank's tokens and the gradient behind them."""
    if A is None:
        return None, G, None
    return (G * S).sum_to_size(A.shape) if A.shape[-1] == 1 else G @ S.mT, G, None


# --- from rank to rank ----------------------------------------------------------------------------


class _Scan(Function):
    """The state before this rank's tokens: received, and passed on as A S + B."""

    @staticmethod
    def forward(ctx, A: Tensor | None, B: Tensor, place: Place) -> Tensor:
        group, rank, n = place
        S = torch.zeros_like(B)
        if rank:
            dist.recv(S, group=group, group_src=rank - 1)
        if rank < n - 1:
            dist.send(_faded(A, S) + B, group=group, group_dst=rank + 1)
        ctx.place = place
        ctx.save_for_backward(A, S)
        return S

    @staticmethod
    @once_differentiable
    def backward(ctx, dS: Tensor):
        (A, S), (group, rank, n) = ctx.saved_tensors, ctx.place
        G = torch.zeros_like(S)
        if rank < n - 1:
            dist.recv(G, group=group, group_src=rank + 1)
        if rank:
            dist.send(_unfaded(A, G) + dS, group=group, group_dst=rank - 1)
        return _gradients(A, S, G)


class _Gather(Function):
    """The state before this rank's tokens: put together from what all ranks have gathered."""

    @staticmethod
    def forward(ctx, A: Tensor | None, B: Tensor, place: Place) -> Tensor:
        group, rank, _ = place
        factors = None if A is None else all_gather(A[None], group)
        S = torch.zeros_like(B)
        for r, B_r in enumerate(all_gather(B[None], group)[:rank]):
            S = _faded(None if A is None else factors[r], S) + B_r
        ctx.place = place
        ctx.save_for_backward(S, factors)
        return S

    @staticmethod
    @once_differentiable
    def backward(ctx, dS: Tensor):
        (S, factors), (group, rank, n) = ctx.saved_tensors, ctx.place
        gradients, G = all_gather(dS[None], group), torch.zeros_like(S)
        for r in reversed(range(rank + 1, n)):
            G = _unfaded(None if factors is None else factors[r], G) + gradients[r]
        return _gradients(None if factors is None else factors[rank], S, G)
