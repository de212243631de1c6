"""Linear attention in chunks: no token is forgotten, and each row may be divided by its sum."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import relu

from weft.kernels.code import Pass
from weft.kernels.linear.autograd import differentiable, launched
from weft.plan.linear import check, check_causal, check_feature, check_pair, check_state

Feature = str | Callable[[Tensor], Tensor]
State = Tensor | tuple[Tensor, Tensor]


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature: Feature = "elu",
    normalize: bool = True,
    causal: bool = True,
    initial: State | None = None,
    final: bool = False,
    chunk: int = 64,
) -> Tensor | tuple[Tensor, State]:
    """The state from chunk to chunk, then all chunks at once, as weft.ref.linear.chunked.

    For fp16, bf16 and fp32, K and V of up to 256 and chunks of up to 128 tokens; sums and states
    are in fp32. Features are torch's, each rounded to q's dtype. The normaliser is a second call
    for values of width 1, which are all the same 1: it reads q and k once more, but a column
    beside v would have v copied, and its rows no longer aligned. fp16 that is normalised is
    computed in fp32, since sums of features soon pass the largest fp16.
    """
    check_causal(causal)
    check(q, k, v)
    q, k = featured(q, k, feature)
    if not normalize:
        o, last = differentiable(q, k, v, None, initial, chunk)
        return (o, last) if final else o
    S, z = apart(initial, q, v)
    wide = torch.float32 if v.dtype == torch.float16 else v.dtype
    q, k, values = q.to(wide), k.to(wide), v.to(wide)
    ones = values.new_ones(1, 1, 1, 1).expand(*v.shape[:3], 1)
    o, S = differentiable(q, k, values, None, S, chunk)
    total, z = differentiable(q, k, ones, None, z, chunk)
    o = (o / total).to(v.dtype)
    return (o, (S, z.squeeze(-1))) if final else o


def featured(q: Tensor, k: Tensor, feature: Feature) -> tuple[Tensor, Tensor]:
    """The features of q and k; a function is given fp32, as in the reference."""
    check_feature(feature, FEATURES)
    if callable(feature):
        return tuple(feature(x.float()).to(x.dtype) for x in (q, k))
    return FEATURES[feature](q), FEATURES[feature](k)


def one_plus_elu(x: Tensor) -> Tensor:
    """1 + elu(x), rounded once: near -1 little would be left of elu(x) in half precision."""
    return x.clamp(max=0).exp() + relu(x)


def apart(initial: State | None, q: Tensor, v: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """S [B, H, K, V] and z as a state for values of width 1, [B, H, K, 1]."""
    if initial is None:
        return None, None
    check_pair(initial)
    B, _, H, K = q.shape
    check_state("initial[0]", initial[0], "S [B, H, K, V]", (B, H, K, v.shape[-1]), q)
    check_state("initial[1]", initial[1], "z [B, H, K]", (B, H, K), q)
    return initial[0], initial[1].unsqueeze(-1)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip.

    Without a normaliser, whose passes are the same for values of width 1.
    """
    return launched(partial(chunked, normalize=False), target, **kind)


FEATURES = {"elu": one_plus_elu, "relu": relu, "identity": lambda x: x}
