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
    # Your code here.
    raise NotImplementedError


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
    # Your code here.
    raise NotImplementedError


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
    # Your code here.
    raise NotImplementedError


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
    # Your code here.
    raise NotImplementedError


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
    # Your code here.
    raise NotImplementedError
