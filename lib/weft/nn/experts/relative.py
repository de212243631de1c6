"""T5's attention: how far apart two tokens stand is a number added to their score.

Dims: B batch, T query time, S key time, D width, H heads, K width of one head.
"""

from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


def bucket(ahead: Tensor, buckets: int, farthest: int, both: bool) -> Tensor:
    """Which of `buckets` each distance falls into; `ahead` is key minus query, in tokens.

    Of the buckets for one side the first half hold one distance each, from 0 on, and the others
    grow with it; from `farthest` on all is one bucket. A decoder has one side, and what is ahead
    counts as 0 away. With `both` a side has half of the buckets, the keys ahead the second half.
    Raffel et al. 2020, section 2.1.

    >>> bucket(torch.tensor([0, -1, -4, -16, -99]), 8, 20, both=False).tolist()
    [0, 1, 4, 7, 7]
    """
    side = buckets // 2 if both else buckets
    away, exact = ahead.abs() if both else (-ahead).clamp(min=0), side // 2
    # In fp32 and in this order: at the bounds rounding decides, and published weights know one.
    octaves = (away.clamp(min=exact).float() / exact).log() / log(farthest / exact)
    grown = (exact + (octaves * (side - exact)).long()).clamp(max=side - 1)
    found = torch.where(away < exact, away, grown)
    return found + side * (ahead > 0) if both else found


class RelativeBias(nn.Module):
    """What is added to the score of query i and key j, for each head: [H, T, T].

    It depends on the bucket of j - i alone. Without `both`, of a decoder, it is -inf where j > i.
    """

    def __init__(self, heads: int, buckets: int, farthest: int, both: bool):
        super().__init__()
        self.farthest, self.both = farthest, both
        self.weight = nn.Parameter(torch.zeros(buckets, heads))

    def forward(self, T: int) -> Tensor:
        place = torch.arange(T, device=self.weight.device)
        ahead = place - place[:, None]
        which = bucket(ahead, len(self.weight), self.farthest, self.both)
        bias_HTT = self.weight[which].permute(2, 0, 1)
        return bias_HTT if self.both else bias_HTT.masked_fill(ahead > 0, -torch.inf)


class T5Attention(nn.Module):
    """Attention of x [B, T, D] to itself, or to another sequence [B, S, D]; [B, T, D].

    Scores are q . k plus a bias, not divided by sqrt(K): T5 lets the initial q be smaller instead.
    """

    def __init__(self, width: int, heads: int, head_width: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (
            nn.Linear(width, heads * head_width, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(heads * head_width, width, bias=False)

    def forward(
        self, x_BTD: Tensor, bias: Tensor | None = None, other: Tensor | None = None
    ) -> Tensor:
        read = x_BTD if other is None else other
        flat = self.q(x_BTD), self.k(read), self.v(read)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in flat)
        o_BHTK = scaled_dot_product_attention(q, k, v, bias, scale=1.0)
        return self.out(o_BHTK.transpose(1, 2).flatten(-2))
