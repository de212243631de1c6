"""What a token costs in training: parameters, and attention over all tokens or retention in chunks.

A parameter takes 6 FLOPs a token in forward and backward. Causal attention takes (K + V) T a head
forward, and 2.5 times as many in a backward that makes the scores again, as FlashAttention does.
Retention takes the chunked form's FLOPs three times: every product has two gradients.
"""

from weft.plan.arguments import instance, sizes, whole
from weft.plan.linear import work
from weft.plan.retention.models import RetentionModel

RECOMPUTED = 3.5  # FlashAttention's FLOPs in both passes over those forward


def token_flops(model: RetentionModel, T: int, C: int | None = None) -> float:
    """FLOPs of a token in a sequence of T: of the RetNet in chunks of C, or of the Transformer.

    Embeddings and the head's scores are not counted, for they are the same in both.

    >>> from weft.plan.retention import RETNETS
    >>> [round(token_flops(RETNETS["6.7b"], 8192, C) / 1e9, 1) for C in (None, 512)]
    [46.2, 40.7]
    """
    instance(RetentionModel, model=model)
    (T,) = sizes(T=T)
    if C is None:
        mixing = RECOMPUTED * 2 * T * model.width
    else:
        C = whole("C", C)
        mixing = 3 * model.heads * work("chunked", T, model.K, model.V, C).flops / T
    return 6 * model.params + model.layers * mixing


def speedup(model: RetentionModel, T: int, C: int = 512) -> float:
    """How much faster the RetNet trains than the Transformer, if every FLOP takes as long.

    >>> from weft.plan.retention import RETNETS
    >>> [round(speedup(RETNETS[name], 8192), 2) for name in ("1.3b", "2.7b", "6.7b")]
    [1.26, 1.21, 1.14]
    """
    return token_flops(model, T) / token_flops(model, T, whole("C", C))
