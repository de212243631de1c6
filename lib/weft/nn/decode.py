"""Generation with a cache in blocks: a small decoder with grouped heads, and what it keeps.

weft.plan.decode decides which block a token goes into, which block is copied before it is written,
and which sequence is evicted when the cache is full; here its events move tensors. Attention is
passed in. Dims: B batch, T time, D width, H heads, G kv heads, K width of one head, N vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from weft.nn import transformer
from weft.plan.arguments import sizes
from weft.plan.decode import Blocks, Event, Scheduler, ServingTurn
from weft.ref.attention import attention
from weft.ref.decode import paged_attention

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # of a layer, q, k and v


@dataclass(frozen=True)
class DecoderConfig(transformer.Config):
    """A decoder's sizes with `kv_heads`, which divides `heads`; as many as heads if None."""

    kv_heads: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.kv_heads is not None:
            sizes(kv_heads=self.kv_heads)
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads is {self.kv_heads}, must divide heads = {self.heads}")


def at_once(layer: int, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor) -> Tensor:
    """Causal attention among the given tokens alone, without a cache."""
    return attention(q_BTHK, k_BTGK, v_BTGK, causal=True)


class DecoderBlock(nn.Module):
    """The transformer's block with a projection of G heads for keys and values."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        width, hidden = config.width, config.hidden or 4 * config.width
        self.heads, self.kv_heads = config.heads, config.kv_heads or config.heads
        self.norm_attention = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width * self.kv_heads // self.heads, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x_BTD: Tensor, layer: int, attend: Attend) -> Tensor:
        y = self.norm_attention(x_BTD)
        q = self.q(y).unflatten(-1, (self.heads, -1))  # [B, T, H, K]
        k, v = self.kv(y).unflatten(-1, (2, self.kv_heads, -1)).unbind(2)  # [B, T, G, K]
        x_BTD = x_BTD + self.out(attend(layer, q, k, v).flatten(-2))
        return x_BTD + self.down(gelu(self.up(self.norm_mlp(x_BTD))))


class Decoder(nn.Module):
    """Scores for the token after each one: [B, T] whole numbers to [B, T, N].

    The tokens stand at `positions` [B, T], from 0 on if None. `attend` is asked once in each
    layer, and may bring in what it has kept from before.
    """

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.embedding = transformer.Embedding(config)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.head = transformer.Head(config)

    def forward(
        self, tokens_BT: Tensor, positions_BT: Tensor | None = None, attend: Attend = at_once
    ) -> Tensor:
        if positions_BT is None:
            x_BTD = self.embedding(tokens_BT)
        else:
            embed = self.embedding
            x_BTD = embed.tokens(tokens_BT) + embed.positions(positions_BT)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, layer, attend)
        return self.head(x_BTD)


class PagedCache:
    """Keys and values of many sequences, in `count` blocks of `block` tokens.

    `k` and `v` are [L, count, block, G, K]: the blocks of all layers are one block in the books,
    so one table serves the whole model. A sequence is known by any name. Where there is no room,
    CacheFull says how much is missing, and nothing has been changed.
    """

    def __init__(self, model: Decoder, count: int, block: int = 16):
        like, config = model.head.tokens.weight, model.config
        G, K = config.kv_heads or config.heads, config.width // config.heads
        self.books = Blocks(count, block)
        self.k, self.v = (like.new_zeros(config.layers, count, block, G, K) for _ in range(2))

    def add(self, name, tokens: int = 0) -> None:
        """Begin a sequence with room for so many tokens."""
        self._follow(self.books.add(name, tokens))

    def extend(self, name, tokens: int = 1) -> None:
        """Make room for so many more; a block that others hold too is copied first."""
        self._follow(self.books.extend(name, tokens))

    def fork(self, parent, child) -> None:
        """Begin a sequence with the tokens of another; nothing is copied before one is written."""
        self._follow(self.books.fork(parent, child))

    def drop(self, name) -> None:
        """End a sequence."""
        self._follow(self.books.drop(name))

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "copy":
                for cache in (self.k, self.v):
                    cache[:, event.block, : event.tokens] = cache[:, event.source, : event.tokens]

    def table(self, names: Sequence) -> tuple[Tensor, Tensor]:
        """block_table [B, most blocks] and lengths [B] of some sequences, for paged attention."""
        rows = [self.books.table(name) for name in names]
        wide = max(map(len, rows))
        table = [[*row, *[0] * (wide - len(row))] for row in rows]
        lengths = [self.books.length(name) for name in names]
        device = self.k.device
        return (
            torch.tensor(table, dtype=torch.int32, device=device).view(len(rows), wide),
            torch.tensor(lengths, dtype=torch.int32, device=device),
        )

    def slots(self, name, first: int, last: int) -> Tensor:
        """Where tokens [first, last) of a sequence lie, if all slots are counted in a row."""
        places = (self.books.place(name, token) for token in range(first, last))
        slots = [block * self.books.block + slot for block, slot in places]
        return torch.tensor(slots, device=self.k.device)

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Put keys and values [tokens, G, K] of one layer into slots."""
        self.k[layer].flatten(0, 1)[slots] = k
        self.v[layer].flatten(0, 1)[slots] = v

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of one layer in some slots, [tokens, G, K]."""
        return self.k[layer].flatten(0, 1)[slots], self.v[layer].flatten(0, 1)[slots]


# --- one model, one cache -------------------------------------------------------------------------


@torch.no_grad()
def prefill(model: Decoder, cache: PagedCache, name, tokens: Sequence[int]) -> Tensor:
    """Run the last tokens of one sequence, for which there is room, all at once: scores [T, N].

    They look at each other and at what the cache has of the sequence from before.
    """
    end = cache.books.length(name)
    first = end - len(tokens)
    slots = cache.slots(name, 0, end)

    def attend(layer, q, k, v):
        cache.write(layer, slots[first:], k[0], v[0])
        k, v = (x[None] for x in cache.read(layer, slots))
        return attention(q, k, v, causal=True)

    device = cache.k.device
    positions = torch.arange(first, end, device=device)[None]
    return model(torch.tensor([list(tokens)], device=device), positions, attend)[0]


@torch.no_grad()
def step(
    model: Decoder,
    cache: PagedCache,
    names: Sequence,
    tokens: Sequence[int],
    paged=paged_attention,
) -> Tensor:
    """Run the last token of several sequences, which has room: scores [B, N].

    However long each sequence is, this is one batch of one token. `paged` is the
    attention.
    """
    table, lengths = cache.table(names)
    positions = lengths.long() - 1
    block = cache.books.block
    blocks = table.gather(1, positions[:, None] // block)[:, 0]
    slots = blocks * block + positions % block

    def attend(layer, q, k, v):
        cache.write(layer, slots, k[:, 0], v[:, 0])
        return paged(q, cache.k[layer], cache.v[layer], table, lengths)

    new = torch.tensor(tokens, device=cache.k.device)
    return model(new[:, None], positions[:, None], attend)[:, 0]


def greedy(scores_N: Tensor) -> int:
    """The likeliest token."""
    return int(scores_N.argmax())


class _Store:
    """A cache with the methods that a scheduler calls; to admit a sequence needs all its tokens."""

    def __init__(self, cache: PagedCache, tokens: list[list[int]]):
        self.cache, self.tokens = cache, tokens
        self.grow, self.drop = cache.extend, cache.drop

    def admit(self, name: int) -> None:
        self.cache.add(name, len(self.tokens[name]))


def generate(
    model: Decoder,
    cache: PagedCache,
    prompts: Sequence[Sequence[int]],
    count: int | Sequence[int],
    choose: Callable[[Tensor], int] = greedy,
    watch: Callable[[ServingTurn], None] | None = None,
    prefill=prefill,
    step=step,
) -> list[list[int]]:
    """So many more tokens for each prompt, as many sequences at once as the cache has room for.

    In every turn the running sequences make one token together. One that has to be evicted makes
    the same tokens later: it comes back with those it had, and its cache is computed again.
    `choose` makes a token of scores [N], and `watch` is told each turn before it is run. Another
    kind of cache, or another attention, comes with a `prefill` and a `step` of its own. CacheFull
    means that one sequence does not even fit alone.
    """
    tokens = [list(map(int, prompt)) for prompt in prompts]
    ends = _ends(tokens, count, model.config.seq)
    scheduler = Scheduler(_Store(cache, tokens))
    for name in range(len(tokens)):
        scheduler.submit(name)
    while scheduler.running or scheduler.waiting:
        turn = scheduler.turn()
        if watch:
            watch(turn)
        scores = {name: prefill(model, cache, name, tokens[name])[-1] for name in turn.admitted}
        if turn.grown:
            last = [tokens[name][-1] for name in turn.grown]
            scores |= zip(turn.grown, step(model, cache, turn.grown, last), strict=True)
        for name, each in scores.items():
            tokens[name].append(choose(each))
            if len(tokens[name]) == ends[name]:
                scheduler.finish(name)
    return [line[len(prompt) :] for line, prompt in zip(tokens, prompts, strict=True)]


def _ends(tokens: list[list[int]], count: int | Sequence[int], seq: int) -> list[int]:
    """How many tokens each sequence ends with; ValueError where a prompt or count cannot be."""
    counts = [count] * len(tokens) if isinstance(count, int) else list(count)
    if len(counts) != len(tokens):
        raise ValueError(f"count has {len(counts)} numbers, must have one for each prompt")
    for i, (line, more) in enumerate(zip(tokens, counts, strict=True)):
        if not line:
            raise ValueError(f"prompts[{i}] is empty, must have at least one token")
        if more < 1:
            raise ValueError(f"count is {more} for prompts[{i}], must be at least 1")
        if len(line) + more - 1 > seq:
            raise ValueError(
                f"prompts[{i}] has {len(line)} tokens and is to get {more}, must stay within seq = "
                f"{seq} (the last one is not run)"
            )
    return [len(line) + more for line, more in zip(tokens, counts, strict=True)]
