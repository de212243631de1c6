"""Calls of paged attention that its tests share: right ones, and what can be wrong with one."""

from math import ceil

import torch

NAN = float("nan")


def paged(lengths, block, H, G, K, V, seed=0, dtype=torch.float64, spare=3):
    """A call's arguments, and the keys and values of each sequence in a row.

    Blocks are dealt out at random, one of them is nobody's, slots and table entries beyond a
    length are poisoned.
    """
    dice = torch.Generator().manual_seed(seed)
    wide = max(ceil(S / block) for S in lengths) + 2
    blocks = sum(ceil(S / block) for S in lengths) + spare
    deal = torch.randperm(blocks, generator=dice).tolist()
    caches = [torch.full((blocks, block, G, width), NAN, dtype=dtype) for width in (K, V)]
    table = torch.full((len(lengths), wide), 2**31 - 1, dtype=torch.int32)
    q = torch.randn(len(lengths), 1, H, K, generator=dice, dtype=torch.float64).to(dtype)
    rows = []
    for b, S in enumerate(lengths):
        row = [torch.randn(S, G, w, generator=dice, dtype=torch.float64).to(dtype) for w in (K, V)]
        for i in range(ceil(S / block)):
            table[b, i] = deal.pop()
            for cache, x in zip(caches, row, strict=True):
                piece = x[i * block : (i + 1) * block]
                cache[table[b, i], : len(piece)] = piece
        rows.append(row)
    return (q, *caches, table, torch.tensor(lengths)), rows


def good(dtype=torch.float64):
    """A call that is right, by argument."""
    return dict(
        zip(
            ("q", "k_cache", "v_cache", "block_table", "lengths"),
            paged([3, 6], 4, 4, 2, 5, 6, dtype=dtype)[0],
            strict=True,
        )
    )


WRONG = [  # argument, what to make of it, what is said
    ("q", lambda x: x[0], r"q has shape \[1, 4, 5\], must be \[B, 1, H, K\]"),
    ("q", lambda x: x[:0], r"q has shape \[0, 1, 4, 5\], .* at least 1"),
    ("q", lambda x: x.expand(2, 3, 4, 5), "q has 3 in time, must have 1"),
    ("q", lambda x: x[:, :, :3], "k_cache has 2 heads, must be a number that divides q's 3"),
    ("q", lambda x: x.half(), r"k_cache is float\d+, must be as q, float16"),
    ("q", lambda x: x.int(), "q is int32, must be one of"),
    ("q", lambda x: x.to("meta"), "k_cache is on cpu, must be where q is, on meta"),
    ("q", lambda x: x.tolist(), "q is a list, must be a tensor"),
    ("k_cache", lambda x: x[0], r"k_cache has shape \[4, 2, 5\]"),
    ("k_cache", lambda x: x[..., :4], r"k_cache has shape .*4\], must be .*5\]"),
    ("v_cache", lambda x: x[:, :3], r"v_cache has shape .*3, 2, 6\], must be .*4, 2, 6\]"),
    ("v_cache", lambda x: x[1:], "v_cache has shape"),
    ("v_cache", lambda x: x[:, :, :1], "v_cache has shape"),
    ("v_cache", lambda x: x.half(), r"v_cache is float16, must be as q, float\d+"),
    ("block_table", lambda x: x[0], r"block_table has shape \[4\], must be \[2, most blocks\]"),
    ("block_table", lambda x: x[:1], r"block_table has shape \[1, 4\]"),
    ("block_table", lambda x: x.double(), "block_table is float64, must be one of int32, int64"),
    ("block_table", lambda x: x[:, :1], r"lengths\[1\] is 6, must be from 0 to 4, what 1 blocks"),
    ("block_table", lambda x: x * 0 - 1, r"block_table\[0, 0\] is -1, must be from 0 to 5"),
    ("block_table", lambda x: x * 0 + 6, r"block_table\[0, 0\] is 6, must be from 0 to 5"),
    ("block_table", lambda x: x.to("meta"), "block_table is on meta"),
    ("lengths", lambda x: x[:, None], r"lengths has shape \[2, 1\], must be \[2\]"),
    ("lengths", lambda x: x[:1], r"lengths has shape \[1\], must be \[2\]"),
    ("lengths", lambda x: x.float(), "lengths is float32"),
    ("lengths", lambda x: -x, r"lengths\[0\] is -3"),
    ("lengths", lambda x: x + torch.tensor([0, 11]), r"lengths\[1\] is 17, must be from 0 to 16"),
    ("lengths", list, "lengths is a list"),
]
SCALES = [0, -1.0, NAN, float("inf"), True, "1", torch.tensor(1.0)]
