"""Linear attention: feature(q) . feature(k) in place of exp(q . k), so that the sum regroups.

    sum_j (f(q_i) . f(k_j)) v_j = (sum_j f(k_j) v_j^T)^T f(q_i)

The bracket on the right is a matrix of fixed size, whatever the number of keys. The normaliser is
the same sum with v_j = 1, so it is computed as one more column of v.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import elu, pad, relu

from weft.plan.linear import (
    check,
    check_causal,
    check_chunk,
    check_feature,
    check_pair,
    check_state,
)
from weft.ref.linear.layout import chunks, inside, start, tokens

Feature = str | Callable[[Tensor], Tensor]
State = Tensor | tuple[Tensor, Tensor]
FEATURES = {"elu": lambda x: elu(x) + 1, "relu": relu, "identity": lambda x: x}


def recurrent(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature: Feature = "elu",
    normalize: bool = True,
    causal: bool = True,
    initial: State | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, State]:
    """One token after the other: S_t = S_{t-1} + k_t v_t^T, z_t = z_{t-1} + k_t.

    o_t = S_t^T q_t / (z_t . q_t), with the features of q and k; without `normalize` there is no
    z and no division. Nothing is added to the denominator, and nothing scales the scores.

    q, k [B, T, H, K], v [B, T, H, V] give o [B, T, H, V]. The state is (S [B, H, K, V],
    z [B, H, K]), or S alone without `normalize`, where K is what `feature` makes of it: "elu"
    (1 + elu), "relu", "identity" or a function on the last dim. `initial` is the state before
    the first token, `final` asks for the one after the last. Half precision is computed, and its
    state kept, in fp32. ValueError names an argument that does not fit; `causal` must be true.
    Katharopoulos et al. 2020, equations 16 to 20.
    """
    check_causal(causal)
    Q, K, V, S = _prepared(q, k, v, feature, normalize, initial)
    parts = []
    for q_t, k_t, v_t in tokens(Q, K, V):  # [B, H, 1, K or V]
        S = S + k_t.mT @ v_t
        parts.append(q_t @ S)
    return _finished(parts, S, v, normalize, final)


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
    """The state from chunk to chunk, the triangle of scores inside each.

    O = Q S + tril(Q K^T) V, then S = S + K^T V, with Q, K, V of one chunk. Arguments and result
    as `recurrent`'s; T need not divide by `chunk`.
    """
    check_causal(causal)
    C = check_chunk(chunk)
    Q, K, V, S = _prepared(q, k, v, feature, normalize, initial)
    parts = []
    for q_C, k_C, v_C in chunks(C, Q, K, V):
        parts.append(q_C @ S + (q_C @ k_C.mT).tril() @ v_C)
        S = S + k_C.mT @ v_C
    return _finished(parts, S, v, normalize, final)


def parallel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature: Feature = "elu",
    normalize: bool = True,
    causal: bool = True,
    initial: State | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, State]:
    """All scores at once: O = Q S + tril(Q K^T) V, each row divided by its sum.

    Arguments and result as `recurrent`'s. Where it is not causal, each query sees all keys.
    """
    Q, K, V, S = _prepared(q, k, v, feature, normalize, initial)
    scores = Q @ K.mT
    o = Q @ S + (scores.tril() if causal else scores) @ V
    return _finished([o], S + K.mT @ V, v, normalize, final)


def _prepared(q, k, v, feature, normalize, initial):
    """The features of q and k, the values with a column of ones where asked, and the state."""
    sizes = check(q, k, v)
    check_feature(feature, FEATURES)
    feature = feature if callable(feature) else FEATURES[feature]
    Q, K, V = inside(q, k, v)
    Q, K = feature(Q), feature(K)
    kept = (sizes.B, sizes.H, K.shape[-1])
    if not normalize:
        return Q, K, V, start(initial, q, (*kept, sizes.V))
    V = pad(V, (0, 1), value=1.0)
    if initial is None:
        return Q, K, V, start(None, q, (*kept, sizes.V + 1))
    check_pair(initial)
    S, z = initial
    check_state("initial[0]", S, "S [B, H, K, V]", (*kept, sizes.V), q)
    check_state("initial[1]", z, "z [B, H, K]", kept, q)
    return Q, K, V, torch.cat([S, z.unsqueeze(-1)], -1)


def _finished(parts: list[Tensor], S: Tensor, v: Tensor, normalize: bool, final: bool):
    """o as [B, T, H, V], divided where asked, and the state."""
    o = torch.cat(parts, 2).transpose(1, 2) if parts else S.new_zeros(*v.shape[:3], S.shape[-1])
    if normalize:
        o, S = o[..., :-1] / o[..., -1:], (S[..., :-1], S[..., -1])
    return (o.to(v.dtype), S) if final else o.to(v.dtype)
