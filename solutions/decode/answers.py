"""Decoding: five functions to write. README.md says what each has to reach.

The first three are plain Python. The fourth is torch on tiles, the last a Triton kernel: what they
load and store is counted.

The library's own caches, plans and kernels are closed while you are graded. Grade with
`weft grade decode`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first three need neither
    tl = SimpleNamespace(constexpr=None)


def prefix(operations: list[list], count: int, block: int) -> list[int | None]:
    """A cache of `count` blocks, each with room for `block` tokens, in which prefixes are found.

    Operations come in order, and their names are right:

    ["start", name, tokens]   a request comes with its prompt, a list of one token or more
    ["next", name, token]     the model has made one more token, and its key and value are kept
    ["end", name]             the request ends, and lets go of all its blocks

    A request of n tokens holds ceil(n / block) blocks, and several may hold the same one. A block
    that is full can be found, by all tokens of the sequence up to the block's end, by operations
    after the one that has filled it. This is how "start" finds blocks: from the first one on, as
    many as follow each other. The last token of a prompt is always computed, as the answer's first
    token is made of it, so no block that has it is found.

    For what it has not found, "start" takes blocks, and "next" takes one where all that the request
    has are full. Blocks without content are taken first. Then, of those that nobody holds, the one
    whose last holder let go first; of those that were let go at the same time, the one furthest
    from the start of its sequence. What a block had can then not be found any more. A request holds
    what it has found before it takes any. If there are too few for all that an operation takes, it
    does nothing: a request that was not started is not there, and a token that had no room has not
    been made.

    If a block becomes full, or was computed, that could have been found in another block, by the
    same tokens, then the request holds that one, and its own is without content again. When a
    request ends, full blocks that nobody holds any more keep their content, and one that is not
    full loses it.

    Return, for each operation, None if there was too little room; else for "start" how many tokens
    it has found, and 0 for others.

    prefix([["start", "a", [1, 2, 3, 4, 5]], ["start", "b", [1, 2, 3, 4]], ["end", "a"],
    ["start", "c", [1, 2, 3, 4, 5, 6]], ["start", "d", [7]]], count=3, block=2): a takes all three
    blocks, and fills two. b finds the first of them, but not the second, which has its last token,
    and there is no block to take. When a has ended, c finds two, and takes the third. No block is
    left for d: [0, None, 0, 4, None]. With count=4, b takes the fourth, and gives it back at once
    for the one with the same tokens: [0, 2, 0, 4, 0].
    """
    # BEGIN SOLUTION
    running, cached, done = {}, {}, []  # cached, by all tokens: holders, and when they let go
    for now, (kind, name, *more) in enumerate(operations):
        found = []
        if kind == "end":
            for key in _ends(running.pop(name), block):
                cached[key] = cached[key][0] - 1, now
            done.append(0)
            continue
        if kind == "start":
            tokens = list(more[0])
            for key in _ends(tokens[:-1], block):
                if key not in cached:
                    break
                found.append(key)
            taken = -(-len(tokens) // block) - len(found)
        else:
            tokens = [*running[name], *more]
            taken = int((len(tokens) - 1) % block == 0)
        empty = count - len(cached) - sum(len(own) % block > 0 for own in running.values())
        idle = [key for key, (holders, _) in cached.items() if not holders and key not in found]
        if taken > empty + len(idle):
            done.append(None)
            continue
        idle.sort(key=lambda key: (cached[key][1], -len(key)))
        for key in idle[: max(0, taken - empty)]:
            del cached[key]
        before = len(running.get(name, ())) // block if kind == "next" else 0
        for key in _ends(tokens, block)[before:]:
            cached[key] = cached.get(key, (0, 0))[0] + 1, 0
        running[name] = tokens
        done.append(len(found) * block)
    return done
    # END SOLUTION


# BEGIN SOLUTION
def _ends(tokens, block):
    """All tokens up to the end of each full block."""
    return [tuple(tokens[:end]) for end in range(block, len(tokens) + 1, block)]


# END SOLUTION


def verify(
    parents: list[int],
    tokens: list[int],
    q: list[list[float]],
    p: list[list[float]],
    uniforms: list[float],
) -> list[int]:
    """The tokens that a step makes whose guesses are a tree, distributed as the model's.

    Node 0 is what there is already. Node i > 0 is a guess, the word tokens[i], that follows on node
    parents[i] < i; parents[0] is -1, and tokens[0] is of no use here. Nodes with the same parent
    are siblings. They were drawn by the draft one after the other, in the order of their numbers,
    and no word twice: the first by the chances q[parent], each later one by the same chances of the
    words that were not drawn before, normalized. p[i] are the model's chances of the word after
    node i, q[i] the draft's, each a list that sums to 1; q of a node without children is of no use.

    Walk from node 0 down. At a node, look at its children in their order. Each of them stands with
    some chance: if it does, its word is made, and you go on there. If none is left, a last word is
    drawn, and you are done; so at a node without children. The chances are such that

    - whatever the tree is, a word that is made at a node is distributed by the node's p,
    - each child stands as often as this allows, given that those before it have fallen.

    Numbers of `uniforms`, at least 0 and below 1, are used in turn. One is used for each child that
    you look at, which stands if the number is below its chance; also where this is 0 or 1. One is
    used for the last word: the first one for which the chances of all words up to it, summed, are
    above that number. There are enough, and some may be left.

    Return all words that were made, at least one.

    With q = [[0.5, 0.25, 0.25], …] and p = [[0.25, 0.25, 0.5], …], and one guess, word 0, after
    node 0: it stands with chance 0.5. If it falls, only word 2 is drawn. Now let there be a second
    guess, word 1. When word 0 has fallen, word 1 falls, too, whatever the number is:
    verify([-1, 0, 0], [-1, 0, 1], q, p, [0.5, 0.0, 0.9]) is [2].
    """
    # BEGIN SOLUTION
    draws, here, made = iter(uniforms), 0, []
    while True:
        wanted, drafted = list(p[here]), list(q[here])
        for child in range(1, len(parents)):
            if parents[child] != here:
                continue
            x = tokens[child]
            if next(draws) * drafted[x] < wanted[x]:
                break
            wanted = _normal([max(a - b, 0.0) for a, b in zip(wanted, drafted, strict=True)])
            drafted[x] = 0.0
            drafted = _normal(drafted)
        else:
            number, x, upto = next(draws), 0, wanted[0]
            while upto <= number and x + 1 < len(wanted):
                x += 1
                upto += wanted[x]
            return [*made, x]
        made.append(tokens[child])
        here = child
    # END SOLUTION


# BEGIN SOLUTION
def _normal(chances):
    total = sum(chances)
    return [x / total for x in chances] if total else chances


# END SOLUTION


def draft(
    node: dict, model: dict, drafts: list[dict], context: int, limit: float
) -> tuple[int, str | None, int, int, float] | None:
    """A server that guesses: GPUs, draft, guesses and batch, for the most tokens of each GPU.

    node     gpus; of a GPU memory in bytes, bandwidth in bytes/s and rate in FLOP/s, as kernels
             reach them; wait, the seconds of an all-reduce, however many GPUs of the node take part
    model    layers; params, of 2 bytes each; cache, the bytes that a token leaves
    drafts   the same of each, and its name, and right: chances that its first, second, … guess in
             a step is right, given that those before it were. It makes at most so many guesses. One
             without layers, parameters and cache guesses from the text, and takes no time
    context  tokens of each sequence, of which the model and the draft of your choice keep the cache
    limit    the seconds between two tokens of a sequence, on average

    t GPUs serve a batch of B sequences together: 1, 2, 4 and so on, up to those of the node. Each
    has a t-th of all weights and caches. Nine tenths of the memory of all t can be used, and have
    to be enough for the weights of model and draft and the caches of B sequences.

    A pass of the model or a draft, with T tokens of each sequence, takes, one after the other: the
    weights, read once while the matmuls run, 2 FLOPs for each parameter and token, whichever takes
    longer; then the caches of B sequences, read once; and two all-reduces in each layer, where t is
    above 1. Attention's own arithmetic is not counted.

    In a step the draft makes g guesses, 1 or more, in g passes of one token each; then the model
    has a pass of g + 1 tokens. All guesses stand up to the first that is wrong, and one more token
    is made. Without a draft (None) there are 0 guesses. A step's seconds over the tokens of a
    sequence that it makes on average must not be above the limit.

    Return (t, name of the draft or None, g, B, tokens per second of all sequences for each of the
    t GPUs) with the most tokens of those that fit within memory and limit, of equal ones any; None
    if there is none.

    Llama 3.1 70B on H100s, with drafts whose chances are assumed: node = {"gpus": 8, "memory":
    80e9, "bandwidth": 2.68e12, "rate": 395.76e12, "wait": 10e-6}, model = {"layers": 80, "params":
    70553706496, "cache": 327680}, drafts = [{"name": "1B", "layers": 16, "params": 1235814400,
    "cache": 32768, "right": [0.7, 0.68, 0.66, 0.64, 0.62]}, {"name": "8B", "layers": 32, "params":
    8030261248, "cache": 131072, "right": [0.8, 0.79, 0.78, 0.77, 0.76]}], context = 4096 and
    limit = 0.02: (8, '1B', 1, 202, 1262.74…).
    """
    # BEGIN SOLUTION
    best = None
    t = 1
    while t <= node["gpus"]:

        def seconds(of, B, T, t=t):
            weights = max(
                2 * of["params"] / (t * node["bandwidth"]),
                2 * of["params"] * B * T / (t * node["rate"]),
            )
            caches = B * context * of["cache"] / (t * node["bandwidth"])
            return weights + caches + (2 * of["layers"] * node["wait"] if t > 1 else 0.0)

        for one in (None, *drafts):
            both = [model] + ([one] if one else [])
            left = 9 * t * node["memory"] / 10 - sum(2 * of["params"] for of in both)
            room = int(left // (context * sum(of["cache"] for of in both)))
            chance, made = 1.0, 1.0
            for g in range(1, len(one["right"]) + 1) if one else (0,):
                if one:
                    chance *= one["right"][g - 1]
                    made += chance

                def step(B, one=one, g=g):
                    return seconds(model, B, g + 1) + (g * seconds(one, B, 1) if one else 0.0)

                low, high = 0, max(0, room)  # a step of more sequences takes longer
                while low < high:
                    middle = (low + high + 1) // 2
                    low, high = (
                        (middle, high) if step(middle) <= limit * made else (low, middle - 1)
                    )
                rate = low * made / step(low) / t if low else 0.0
                if low and (best is None or rate > best[-1]):
                    best = t, one and one["name"], g, low, rate
        t *= 2
    return best
    # END SOLUTION


def cascade(
    q, k_cache, v_cache, tables: list[list[int]], shared: int, lengths: list[int], o, sram
) -> None:
    """One query of each head of many sequences, over a cache in blocks whose first are the same.

    q [B, H, K] and o [B, H, V], caches [blocks, block, G, K] and [blocks, block, G, V], all float32
    in slow memory. Head h uses kv head h // (H / G). Token i of sequence b lies in slot i % block
    of block tables[b][i // block], and there are lengths[b] of them. The first `shared` entries of
    all tables are the same blocks, and full in each sequence; no other block is in two tables. What
    lies elsewhere in the caches is not a number, and what stands in a table beyond the last block
    of its sequence is no block. Scores are q k^T / sqrt(K); without any token o is 0.

    Fill o. You are called within `with sram:`, where torch's arithmetic works on tiles alone:
    sram.load(x[a:b]) copies a slice into a tile, sram.store(x[a:b], tile) writes a tile back,
    sram.alloc(3, 5, fill=0.0) makes one. All that operations make must fit, temporaries too.

    Read each key and value once in all, whatever sequences and heads use it, and each query once;
    write o once, and do not read it. Bytes of tile memory: README.md.
    """
    # BEGIN SOLUTION
    B, H, K = q.shape
    block, G, V = v_cache.shape[1:]
    R = H // G
    for g in range(G):
        heads = slice(g * R, (g + 1) * R)
        b_q = sram.load(q[:, heads]).mul_(K**-0.5)
        b_o = sram.alloc(B, R, V)
        b_m, b_l = sram.alloc(B, R, fill=float("-inf")), sram.alloc(B, R)
        for b in range(-1, B):  # first the blocks of all
            rows = slice(b, b + 1) if b >= 0 else slice(0, B)
            count = lengths[b] if b >= 0 else shared * block
            for start in range(shared * block if b >= 0 else 0, count, block):
                n, at = min(block, count - start), tables[b][start // block]
                b_k = sram.load(k_cache[at, :n, g])
                b_s = b_q[rows].flatten(0, 1) @ b_k.T
                del b_k
                b_s = b_s.view(-1, R, n)
                new_m = torch.maximum(b_m[rows], b_s.amax(2))
                b_s.sub_(new_m[:, :, None]).exp_()
                fade = b_m[rows].sub_(new_m).exp_()
                b_l[rows].mul_(fade).add_(b_s.sum(2))
                b_o[rows].mul_(fade[:, :, None])
                b_v = sram.load(v_cache[at, :n, g])
                b_o[rows].view(-1, V).addmm_(b_s.view(-1, n), b_v)
                b_m[rows] = new_m
                del b_v, b_s, new_m, fade
        sram.store(o[:, heads], b_o.div_(b_l.clamp_(min=1e-30)[:, :, None]))
        del b_q, b_o, b_m, b_l
    # END SOLUTION


def latent(
    p_q, p_c, p_scales, p_r, p_table, p_o, p_lse, length, each, scale,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as latent[(pieces,)](…): MLA's latents in 8 bits, read once for all.

    One sequence. Program i looks at tokens i * each up to the next one's first, or to `length`, and
    does so for all H heads. A token leaves a latent of C numbers and R numbers that know its
    position, the same ones for all heads. Latents c [blocks, BLOCK, C] are float8 (e4m3), with
    scales [blocks, BLOCK, C / GROUP] float32: number j of a token's latent is c[j] as float32 times
    its scale j // GROUP. The others, r [blocks, BLOCK, R], are float32. Token i lies in slot
    i % BLOCK of block table[i // BLOCK], of whole numbers. q is [H, C + R] float32: the absorbed
    query, and then what meets r. All lie element after element.

    The score of a token is `scale` times the sum of both products, of the latent's and of r's. Its
    value is the latent; r is no part of it. Write o [pieces, H, C] float32, the attention over a
    program's tokens alone, and lse [pieces, H], the natural log of the sum of their exponentials.
    Where the sequence has ended before a piece begins, that is 0 and -inf.

    H, C, R, GROUP and BLOCK are powers of two, 2 or more, GROUP divides C, and `each` is a multiple
    of BLOCK. A program loads q at most once, and of its tokens each number of the latent, each
    scale, each number of r and each entry of the table once, and nothing else: slots behind the
    last token, blocks of others and entries of the table that are not needed hold anything. Store
    each result once. Do not write a decorator: the grader adds triton.jit. Products may be tl.dot
    in "ieee" precision, or sums.
    """
    # BEGIN SOLUTION
    i = tl.program_id(0)
    o_h, o_c, o_r, o_g = (
        tl.arange(0, H), tl.arange(0, C), tl.arange(0, R), tl.arange(0, C // GROUP)
    )  # fmt: skip
    p_row = p_q + o_h[:, None] * (C + R)
    b_q = tl.load(p_row + o_c[None, :]) * scale
    b_turned = tl.load(p_row + C + o_r[None, :]) * scale
    b_o = tl.zeros([H, C], tl.float32)
    b_m = tl.full([H], float("-inf"), tl.float32)
    b_l = tl.zeros([H], tl.float32)
    for start in range(i * each, tl.minimum(length, (i + 1) * each), BLOCK):
        o_s = tl.arange(0, BLOCK)
        m_s = start + o_s < length
        o_slot = (tl.load(p_table + start // BLOCK) * BLOCK + o_s)[:, None]
        m_row = m_s[:, None]
        b_c = tl.load(p_c + o_slot * C + o_c[None, :], mask=m_row, other=0.0).to(tl.float32)
        b_scales = tl.load(p_scales + o_slot * (C // GROUP) + o_g[None, :], mask=m_row, other=0.0)
        b_c = tl.reshape(b_c, [BLOCK, C // GROUP, GROUP]) * b_scales[:, :, None]
        b_c = tl.reshape(b_c, [BLOCK, C])
        b_r = tl.load(p_r + o_slot * R + o_r[None, :], mask=m_row, other=0.0)
        b_s = tl.dot(b_q, tl.trans(b_c), input_precision="ieee")
        b_s = tl.dot(b_turned, tl.trans(b_r), b_s, input_precision="ieee")
        b_s = tl.where(m_s[None, :], b_s, float("-inf"))
        new_m = tl.maximum(b_m, tl.max(b_s, 1))
        b_p = tl.exp(b_s - new_m[:, None])
        fade = tl.exp(b_m - new_m)
        b_l = b_l * fade + tl.sum(b_p, 1)
        b_o = tl.dot(b_p, b_c, b_o * fade[:, None], input_precision="ieee")
        b_m = new_m
    b_l = tl.where(b_l == 0.0, 1.0, b_l)
    tl.store(p_o + (i * H + o_h)[:, None] * C + o_c[None, :], b_o / b_l[:, None])
    tl.store(p_lse + i * H + o_h, b_m + tl.log(b_l))
    # END SOLUTION
