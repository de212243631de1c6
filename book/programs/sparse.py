"""Attention to some of the keys, by blocks: what no query sees is not computed.

Run it with python sparse.py.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

T, H, K, BLOCK, W = 1000, 2, 32, 64, 128  # tokens, heads, width, block, window

device = "cuda" if torch.cuda.is_available() else "cpu"
tokens = torch.arange(T, device=device)
BLOCKS = range(-(-T // BLOCK))

RULES = {  # which key j a query i sees, one at least; all are causal
    "causal": lambda i, j: j <= i,
    "window": lambda i, j: (j <= i) & (i - j < W),
    "dilated": lambda i, j: (j <= i) & (i - j < 2 * W) & ((i - j) % 2 == 0),
    "globals": lambda i, j: (j <= i) & ((i - j < W) | (j < 4)),
}


def at(block):
    """Where its tokens are; the last block is shorter."""
    return slice(block * BLOCK, (block + 1) * BLOCK)


def lists(sees):
    """The blocks that hold a pair: for each row its columns, and turned."""
    rows, columns = [[] for _ in BLOCKS], [[] for _ in BLOCKS]
    for r in BLOCKS:
        if not sees(tokens[at(r), None], tokens).any(1).all():  # softmax: NaN
            raise ValueError(f"a query in row {r} sees no key")
        for c in BLOCKS:
            mask = sees(tokens[at(r), None], tokens[at(c)])
            if mask.any():
                mask = None if mask.all() else mask  # a full block needs none
                rows[r].append((c, mask))
                columns[c].append((r, mask))
    return rows, columns


def scores(q, k, mask):
    s = q @ k.mT * K**-0.5
    return s if mask is None else s.masked_fill(~mask, -torch.inf)


class BlockSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, rows, columns):
        o, lse = torch.zeros_like(q), torch.zeros_like(q[..., :1])
        for r, row in enumerate(rows):
            s = [scores(q[:, at(r)], k[:, at(c)], mask) for c, mask in row]
            s = torch.cat(s, -1)
            values = torch.cat([v[:, at(c)] for c, _ in row], 1)
            o[:, at(r)] = s.softmax(-1) @ values
            lse[:, at(r)] = s.logsumexp(-1, keepdim=True)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.lists = rows, columns
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        rows, columns = ctx.lists
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        delta = (do * o).sum(-1, keepdim=True)

        def gradients(r, c, mask):  # of a block of weights, made again
            p = (scores(q[:, at(r)], k[:, at(c)], mask) - lse[:, at(r)]).exp()
            dp = do[:, at(r)] @ v[:, at(c)].mT
            return p, p * (dp - delta[:, at(r)]) * K**-0.5

        for r, row in enumerate(rows):  # one owner for each block of dQ
            for c, mask in row:
                dq[:, at(r)] += gradients(r, c, mask)[1] @ k[:, at(c)]
        for c, column in enumerate(columns):  # and one for each of dK and dV
            for r, mask in column:
                p, ds = gradients(r, c, mask)
                dk[:, at(c)] += ds.mT @ q[:, at(r)]
                dv[:, at(c)] += p.mT @ do[:, at(r)]
        return dq, dk, dv, None, None


torch.manual_seed(0)
q, k, v, do = torch.randn(4, H, T, K, dtype=torch.float64, device=device)
inputs = [x.requires_grad_() for x in (q, k, v)]
print(f"{T} tokens, blocks of {BLOCK}, a window of {W}")
print("           pairs  blocks  full  computed / pairs  as masked dense")
for name, sees in RULES.items():
    mask = sees(tokens[:, None], tokens)
    dense = scaled_dot_product_attention(*inputs, attn_mask=mask)
    expected = [dense, *torch.autograd.grad(dense, inputs, do)]
    rows, columns = lists(sees)
    o = BlockSparse.apply(*inputs, rows, columns)
    found = [o, *torch.autograd.grad(o, inputs, do)]
    both = zip(found, expected, strict=True)
    same = all(torch.allclose(a, b) for a, b in both)
    touched = [one for row in rows for _, one in row]
    full = sum(one is None for one in touched)
    waste = len(touched) * BLOCK**2 / mask.sum().item()
    counts = f"{mask.sum():8}{len(touched):8}{full:6}"
    print(f"{name:8}{counts}{waste:18.2f}{same!s:>17}")
