"""Retention: five functions to write. README.md says what each has to reach.

A head's state fades with each token, S_t = decay S_{t-1} + k_t v_t^T, and is read after the write,
o_t = S_t^T q_t. Nothing is divided or normalised unless a function says so.

The library's own retention is closed while you are graded. Grade with `weft grade retention`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # crossing needs neither
    tl = SimpleNamespace(constexpr=None)


def crossing(
    layers: int,
    full: int,
    window: int,
    kv: int,
    width: int,
    size: int,
    block: int,
    heads: int,
    K: int,
    V: int,
    state: int,
    ranks: int = 1,
    moved: bool = False,
) -> int | None:
    """The fewest tokens T >= 1 at which a cache takes more bytes than states do; None for never.

    Both are of one sequence, on the rank that has most. The Transformer has `layers` layers with
    `kv` kv heads each, whose keys and values are `width` wide, of `size` bytes an element. `full`
    of the layers keep all T tokens, in blocks of `block` tokens of which a started one counts
    whole; the others keep the last `window` tokens, or all T while these are fewer, without blocks.
    The RetNet has as many layers with `heads` states of K by V each, `state` bytes an element.
    Heads are dealt to `ranks` as evenly as they can be; a rank has at least one kv head, if need be
    one that others have too.

    With `moved`, compare what one decoding step moves instead of what is kept. It reads and writes
    each state. Of the cache it reads the tokens that are kept, without what is empty in a block,
    and writes one token's keys and values in each layer.

    RetNet 6.7B beside 8 kv heads, in blocks of 16: crossing(32, 32, 0, 8, 128, 2, 16, 16, 256, 512,
    4) is 2049, moved 4096, and over 16 ranks 1025 and 2048. With a window of 1024 in 28 of the
    layers it is 9217, moved 25593; with one in all 32 there is no such T.
    """
    # Your code here.
    raise NotImplementedError


def averaged(q, k, v, log_decay, mean, seen: int):
    """Some tokens of retention as a weighted mean, after `seen` tokens: (o, the mean after them).

    The weights of a head's tokens, decay^(t - j), are divided by their sum, which is known from the
    position: n_t = 1 + decay + ... + decay^t, with t counted from 0 at the sequence's first token.
    So

        o_t = 1 / n_t * sum over j <= t of decay^(t - j) (q_t . k_j) v_j,

    and what is carried from call to call is not S but the mean S_t / n_t, which does not grow: it
    fits into fp16 where S would not.

    q, k [H, n, K] and v [H, n, V] are float32, of the next n tokens, some tens at most. log_decay
    [H, 1, 1] is float32, the natural log of each head's decay: 0 is a head that never forgets, and
    others are as near to 0 as -2^-40. mean [H, K, V] is fp16, of the `seen` tokens before; zeros
    where there are none. Return o [H, n, V] in float32 and the new mean in fp16; compute in float32
    or more, and round to fp16 at the end only.

    One head with log_decay 0, width 1, q = k = 1: for v = 6, 2, 4 o is 6, 4, 4, and the mean 4.
    """
    # Your code here.
    raise NotImplementedError


def turning(q, k, v, decay, speeds, S, chunk: int):
    """Retention with RetNet's rotation, whose state turns instead: (o, the state after all tokens).

    On the page queries and keys are turned by their position, which has to be handed on with the
    state. Here the state turns, and no position is known. With turn(x, n) for x, in which each pair
    of neighbours (0, 1), (2, 3), ... is turned by n * speeds, as the page's `rotate` turns position
    n, and tokens counted from 0 at the first of this call:

        o_i = sum over j <= i of decay^(i - j) (turn(q_i, i) . turn(k_j, j)) v_j, and of the state
              decay^(i + 1) S^T turn(q_i, i + 1);

    S is as if the last token before it stood at position 0: that token's key is in it as it was,
    the key n tokens earlier as turn(k, -n) and faded by decay^n. The state that you return is the
    same for the last token of this call.

    q, k [H, T, K], v [H, T, V], decay [H, 1, 1], speeds [K / 2] and S [H, K, V] are float64, and so
    is what you return. Go through the tokens in chunks of `chunk`, the last one shorter, so that no
    table is larger than chunk by chunk. S belongs to others too: leave it as it is.

    In the graded run, H = 1, T = 256, K = V = 64 and chunks of 32, what operations make may take
    1.5 MiB at once, and all that they write, in new tensors or in place, may be 12 MiB.
    """
    # Your code here.
    raise NotImplementedError


def backward(q, k, v, do, d_last, decay, S, chunk: int):
    """The gradients of chunked retention: (dq, dk, dv, dS, d_log).

    The forward pass was as at the top, without a rotation: q, k [H, T, K], v [H, T, V], decay
    [H, 1, 1] and the state S [H, K, V] before the first token gave o [H, T, V] and the state after
    the last. do [H, T, V] is the gradient of o, d_last [H, K, V] that of the last state. dS is the
    gradient of S, and d_log [H] that of the natural logarithms of the decays, for a RetNet that
    learns them.

    All are float64. Go through the tokens in chunks of `chunk`, the last one shorter. In the graded
    run, H = 2, T = 256, K = V = 8 and chunks of 32, what operations make may take 512 KiB at once,
    the gradients that you return included.
    """
    # Your code here.
    raise NotImplementedError


def step(
    p_q, p_k, p_v, p_log, p_states, p_slots, p_begin, p_fresh, p_o,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as step[(N, H, V // BLOCK)](...): decoding for N sequences at once.

    Program (n, h, b) computes columns b * BLOCK up to (b + 1) * BLOCK of the outputs of sequence n
    in head h. Its tokens are rows begin[n] up to, and not including, begin[n + 1] of q and
    k [rows, H, K] and of v and o [rows, H, V]: one in plain decoding, some where others have
    guessed ahead, and none where a place in the batch is empty. states [slots, H, K, V] holds the
    states of many sequences, in any order; that of n lies in slot slots[n], and is replaced by the
    state after its tokens. Where fresh[n] is 1 the sequence begins: its state is zeros, and what
    lies in its slot is another's, anything, NaN too. log [H] has the natural logs of the decays.
    Numbers are float32 and lie element after element; slots [N], begin [N + 1] and fresh [N] are
    int32. K, V and BLOCK are powers of two. Do not write a decorator: the grader adds triton.jit.

    Load each element of q and k once in each of the V // BLOCK programs that need it, each of v
    once; load each state once, but none for a fresh sequence, and store it once; store o once. A
    place without tokens moves nothing of these, and its slot may be any number.
    """
    # Your code here.
    raise NotImplementedError
