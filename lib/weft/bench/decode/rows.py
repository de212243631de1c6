"""The usual cache: for each sequence a row of the longest length, whatever it uses of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.nn.decode import Decoder
from weft.plan.decode import CacheFull
from weft.ref.attention import attention


class RowCache:
    """A cache with a row of the longest length for each of so many sequences: the usual kind."""

    def __init__(self, model: Decoder, count: int, longest: int):
        config, like = model.config, model.head.tokens.weight
        G, K = config.kv_heads or config.heads, config.width // config.heads
        self.k, self.v = (like.new_zeros(config.layers, count, longest, G, K) for _ in range(2))
        self.free = list(range(count))[::-1]
        self.row: dict[int, int] = {}
        self.tokens: dict[int, int] = {}

    def add(self, name: int, tokens: int) -> None:
        """Give a sequence a row; CacheFull if none is free."""
        if not self.free:
            raise CacheFull(f"sequence {name} finds no row that is free", 1, 0)
        self.row[name], self.tokens[name] = self.free.pop(), tokens

    def extend(self, name: int) -> None:
        """There is room already."""
        self.tokens[name] += 1

    def drop(self, name: int) -> None:
        """The row is free."""
        self.free.append(self.row.pop(name))
        del self.tokens[name]


def run_rows(model: Decoder, rows: RowCache, names: Sequence[int], tokens: Sequence) -> Tensor:
    """Run the last tokens [B, T] of some sequences, each in its row: scores [B, T, N]."""
    device = rows.k.device
    tokens_BT = torch.as_tensor(tokens, device=device)
    row = torch.tensor([rows.row[name] for name in names], device=device)
    ends = torch.tensor([rows.tokens[name] for name in names], device=device)
    positions_BT = ends[:, None] + torch.arange(-tokens_BT.shape[1], 0, device=device)
    S = max(rows.tokens[name] for name in names)
    sees_BTS = torch.arange(S, device=device) <= positions_BT[:, :, None]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows.k[layer, row[:, None], positions_BT] = k
        rows.v[layer, row[:, None], positions_BT] = v
        held = rows.k[layer, row, :S], rows.v[layer, row, :S]
        return attention(q, *held, mask=sees_BTS[:, None])

    return model(tokens_BT, positions_BT, attend)


def prefill_row(model: Decoder, rows: RowCache, name: int, tokens: Sequence[int]) -> Tensor:
    """Run all tokens of one sequence: scores [T, N]."""
    return run_rows(model, rows, [name], [list(tokens)])[0]


def step_rows(
    model: Decoder, rows: RowCache, names: Sequence[int], tokens: Sequence[int]
) -> Tensor:
    """Run the last token of several sequences: scores [B, N]."""
    return run_rows(model, rows, names, [[token] for token in tokens])[:, -1]
