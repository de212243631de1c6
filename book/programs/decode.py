"""Continuous batching on a paged KV cache: a small decoder, a pool of blocks, five requests."""

import torch
from torch.nn import functional as F

LAYERS, D, WORDS, POSITIONS = 2, 32, 61, 64
H, G, K = 8, 2, 4  # query heads, heads of keys and values, their width
BLOCK, COUNT = 4, 10  # tokens of a block, blocks in all
BUDGET = 12  # tokens of a step

device = "cuda" if torch.cuda.is_available() else "cpu"
like = {"dtype": torch.float64, "device": device}
torch.manual_seed(0)


def random(*shape):
    return (torch.randn(shape) / shape[0] ** 0.5).to(**like)


words, places = random(WORDS, D), random(POSITIONS, D)
shapes = (D, H * K), (D, G * K), (D, G * K), (H * K, D), (D, 4 * D), (4 * D, D)
layers = [[random(*shape) for shape in shapes] for _ in range(LAYERS)]


def forward(tokens, positions, attend):
    """The word after each token; `attend` makes the outputs of attention."""
    x = words[tokens] + places[positions]
    for layer, (*qkv, out, up, down) in enumerate(layers):
        h = F.layer_norm(x, (D,))
        q, k, v = ((h @ w).unflatten(1, (-1, K)) for w in qkv)
        x = x + attend(layer, q, k, v).flatten(1) @ out
        x = x + F.gelu(F.layer_norm(x, (D,)) @ up) @ down
    return (F.layer_norm(x, (D,)) @ words.T).argmax(1).tolist()


def attention(q, k, v):
    """A sequence's last tokens look at all: q [new, H, K], k, v [all, G, K]."""
    new, old = len(q), len(k) - len(q)
    seen = torch.ones(new, len(k), device=device).tril(old).bool()
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True)
    return o[0].transpose(0, 1)


class Request:
    def __init__(self, name, prompt, wanted):
        self.name, self.prompt, self.wanted = name, prompt, wanted
        self.tokens = [(7 * i + ord(name)) % WORDS for i in range(prompt)]
        self.cached, self.table = 0, []

    def missing(self, new):
        """Blocks that it lacks for so many more tokens."""
        return -(-(self.cached + new) // BLOCK) - len(self.table)

    def leave(self):
        free.extend(self.table)
        self.cached, self.table = 0, []

    def slots(self, stop):
        """Where the keys and values of its first tokens lie."""
        return [self.table[i // BLOCK] * BLOCK + i % BLOCK for i in range(stop)]


free = list(range(COUNT))[::-1]  # a stack of blocks
keys = torch.full((LAYERS, COUNT * BLOCK, G, K), torch.nan, **like)
values = keys.clone()


def step(batch):
    """The model runs once, over so many new tokens of each request."""

    def attend(layer, q, k, v):
        outputs, begin = [], 0
        for r, new in batch:
            own, slots = slice(begin, begin + new), r.slots(r.cached + new)
            keys[layer, slots[r.cached :]] = k[own]
            values[layer, slots[r.cached :]] = v[own]
            outputs.append(attention(q[own], keys[layer, slots], values[layer, slots]))
            begin += new
        return torch.cat(outputs)

    here = [(r, r.cached + i) for r, new in batch for i in range(new)]
    found = forward([r.tokens[i] for r, i in here], [i for _, i in here], attend)
    for (r, i), word in zip(here, found, strict=True):
        r.cached = i + 1
        if r.cached == len(r.tokens):  # nothing of its prompt is left
            r.tokens.append(word)


def schedule(running, waiting):
    """Who is in the next step, each with how many tokens."""
    batch, budget = [], BUDGET
    for r in running + waiting:  # the oldest first
        new = min(len(r.tokens) - r.cached, budget)
        while r in running and r.missing(new) > len(free):
            running[-1].leave()  # the youngest
            waiting.insert(0, running.pop())
        if r not in running:
            if not budget or r.missing(len(r.tokens)) > len(free):
                break
            running.append(r)
            waiting.remove(r)
        r.table += [free.pop() for _ in range(r.missing(new))]
        batch.append((r, new))
        budget -= new
    return batch


asked = ("A", 5, 9), ("B", 9, 4), ("C", 11, 6), ("D", 3, 12), ("E", 6, 3)
requests = [Request(*each) for each in asked]
running, waiting, steps = [], list(requests), 0
while running or waiting:
    batch = schedule(running, waiting)
    step(batch)
    steps += 1
    done = " ".join(f"{r.name}{new}" for r, new in batch)
    queue = "".join(r.name for r in waiting)
    print(f"{steps:2}: {done:12} {COUNT - len(free):2} blocks  {queue}".rstrip())
    for r in list(running):
        if len(r.tokens) == r.prompt + r.wanted:
            running.remove(r)
            r.leave()
for r in requests:  # once more, all tokens at once and no cache
    found = forward(r.tokens, range(len(r.tokens)), lambda _, *qkv: attention(*qkv))
    print(f"{r.name} as without a cache: {found[r.prompt - 1 : -1] == r.tokens[r.prompt :]}")
