"""Linear attention in chunks: no token is forgotten, and each row may be divided by its sum."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import elu, relu

from weft.kernels.linear.autograd import differentiable
from weft.plan.linear import check, check_feature, check_pair

Feature = str | Callable[[Tensor], Tensor]
State = Tensor | tuple[Tensor, Tensor]
FEATURES = {"elu": lambda x: elu(x) + 1, "relu": relu, "identity": lambda x: x}


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
    are in fp32. Features are torch's, computed in fp32 and rounded to q's dtype. The normaliser
    is a second call for values of width 1, all of them 1: a number that every token shares, and
    that is read from the cache. It reads q and k once more, which a column of v would not; but
    rows of V + 1 numbers are not aligned, and v would have to be copied.
    """
