"""Layouts that a scorer chooses from the tokens: mixture of block attention, and DeepSeek's two.

Each query chooses for itself among the keys not later than it. A layout has the blocks that any
query of a block chose, so a kernel that goes along it shows every query what its neighbours chose
too; where neighbours choose independently of each other, that is soon most of the keys. All are
causal, and of one sequence: B is 1.

Dims: B batch, T time, H heads, G kv heads, K width of a head, J heads of an index, C their width.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, relu

from weft.plan.arguments import sizes, whole
from weft.plan.attention import check
from weft.plan.tensors import ranked, tensor
from weft.ref.attention import INF, softmax
from weft.ref.sparse.fixed import highest


def moba(q: Tensor, k: Tensor, block: int, top: int) -> Tensor:
    """Blocks whose mean key has the highest product with a query: a layout [H, T/b, T/b].

    The query's own block is always one of the `top`. Of the others those before it compete: their
    means hold no future. Choosing has no weights of its own; it takes K multiply-adds for each
    head, query and block before it, one `block`-th of dense attention's for the scores.

    q [1, T, H, K] and k [1, T, G, K]; ValueError names an argument that does not fit. Lu et al.
    2025, section 2.2.
    """
    scores, own, _ = _pooled(q, k, block)
    column = torch.arange(scores.shape[-1], device=q.device)
    (top,) = sizes(top=top)
    return by_blocks(highest(scores.masked_fill(column == own, INF), top), block)


def nsa(q: Tensor, k: Tensor, block: int, top: int, first: int = 1, local: int = 2) -> Tensor:
    """Blocks to which attention over compressed keys gives most weight: a layout [H, T/b, T/b].

    Each head weighs the blocks before the query's own by softmax. The weights are summed over the
    heads that share keys, which so choose the same blocks, and load them once. The `first` blocks
    and the `local` last ones, the query's own among them, are always of the `top`. A compressed
    key is here a block's mean; in the paper a small network makes it, of a part of a block.
    Choosing takes one `block`-th of dense attention's multiply-adds for the scores, which the
    paper's compressed branch computes anyhow.

    q [1, T, H, K] and k [1, T, G, K]; ValueError names an argument that does not fit. Yuan et al.
    2025, section 3.3.2.
    """
    scores, own, G = _pooled(q, k, block)
    first, (local, top) = whole("first", first, 0), sizes(local=local, top=top)
    if top < first + local:
        beside = f"first is {first} and local is {local}"
        raise ValueError(f"top is {top}, must be at least {first + local}: {beside}")
    shared = len(scores) // G
    weights = softmax(scores * q.shape[-1] ** -0.5)[0].unflatten(0, (G, shared)).sum(1)
    column = torch.arange(scores.shape[-1], device=q.device)
    weights = weights.masked_fill((column < first) | (column > own - local), INF)
    weights = weights.masked_fill(column > own, -INF)
    return by_blocks(highest(weights, top), block).repeat_interleave(shared, 0)


def dsa(index_q: Tensor, index_k: Tensor, weights: Tensor, block: int, top: int) -> Tensor:
    """Blocks that hold any of the `top` tokens with the highest index: a layout [1, T/b, T/b].

    A token's index for a query is the sum over J small heads of weight * relu(q . k), with one key
    for all of them; all heads of the attention share what is chosen. DeepSeek's kernel reads the
    tokens themselves, one by one, not their blocks. Choosing takes J * C multiply-adds for every
    pair: it stays quadratic.

    index_q [1, T, J, C], index_k [1, T, C] and weights [1, T, J]; ValueError names an argument
    that does not fit. DeepSeek-AI 2025 (V3.2), section 2.1.
    """
    B, T, J, C = ranked("index_q", index_q, "B T J C")
    _one("index_q", B)
    for name, x, shape in (("index_k", index_k, (B, T, C)), ("weights", weights, (B, T, J))):
        dims = f"{list(shape)} beside index_q"
        tensor(name, x, dims, shape, beside=("index_q", index_q))
    block, top = sizes(block=block, top=top)
    wide = torch.promote_types(index_q.dtype, torch.float32)
    q, k, w = (x[0].to(wide) for x in (index_q, index_k, weights))
    index = torch.einsum("tj,tjs->ts", w, relu(q @ k.T))
    later = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    tokens = highest(index.masked_fill(later, -INF), top)
    return by_blocks(by_blocks(tokens[None], block).mT, block).mT


def by_blocks(seen: Tensor, block: int) -> Tensor:
    """Whether any of a block of rows sees it: [H, T, columns] to [H, T / block, columns]."""
    T = seen.shape[1]
    block = min(block, T)
    return pad(seen, (0, 0, 0, -T % block)).unflatten(1, (-1, block)).any(2)


def _pooled(q: Tensor, k: Tensor, block: int) -> tuple[Tensor, Tensor, int]:
    """Products with the mean keys of all blocks before a query's own, -inf for the others.

    [H, T, T/b], the number of each query's own block [T, 1], and G.
    """
    B, T, S, H, G, *_ = check(q, k, k)
    _one("q", B)
    if S != T:
        raise ValueError(f"k has {S} keys, must have q's {T}")
    block = min(*sizes(block=block), T)
    wide = torch.promote_types(q.dtype, torch.float32)
    k = pad(k[0].to(wide), (0, 0, 0, 0, 0, -T % block)).unflatten(0, (-1, block)).mean(1)
    k = k.repeat_interleave(H // G, 1)  # [T/b, H, K]
    scores = torch.einsum("thk,chk->htc", q[0].to(wide), k)
    own = torch.arange(T, device=q.device).unsqueeze(1) // block
    before = torch.arange(len(k), device=q.device) < own
    return scores.masked_fill(~before, -INF), own, G


def _one(name: str, B: int) -> None:
    if B != 1:
        raise ValueError(f"{name} has {B} sequences, must have 1: a layout is of one")
