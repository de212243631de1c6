"""Griffin: five functions to write. README.md says what each has to reach.

The first is plain Python. The next three are given torch tensors: what they compute, keep and send
is counted. The last is a Triton kernel, whose loads and stores are counted.

The library's own recurrence, attention and plans are closed while you are graded. Grade with
`weft grade griffin`.
"""

from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # widest needs neither
    tl = SimpleNamespace(constexpr=None)


def widest(
    chip: dict, model: dict, lengths: list[int], seconds: float
) -> tuple[int, int, float] | None:
    """The widest window with which these chats fit on a chip and a decoding step is fast enough.

    chip        memory in bytes, bandwidth in bytes/s, rate in FLOP/s
    model       params; layers, of which every `every`-th has local attention, with keys and values
                of `kv_heads` heads of `head` channels; all others have a recurrence on `width`
                channels, behind a convolution of `taps` taps. All whole numbers.
    lengths     the tokens of each chat, at least one chat
    seconds     what a step, one token for each chat, may take

    Weights, keys, values and inputs of the convolution are numbers of 2 bytes, states of 4. For
    each chat there is room for all its states, for the last taps - 1 inputs of each convolution and
    for rings of `window` keys and as many values, however short it is. With the weights that has to
    fit into nine tenths of the memory.

    A step has matmuls, which take the time of reading all weights once or of 2 FLOPs for each
    parameter and chat, whichever is longer. After them, not at the same time, each chat's states
    are read and written, its convolutions' inputs read, and keys and values of min(length, window)
    tokens read; nothing else counts.

    Windows are multiples of 128, and at most the longest chat's tokens rounded up to one. Return
    (window, bytes that all chats keep, seconds of a step); None if not even 128 will do.

    RecurrentGemma 2B has 2.68e9 parameters and 26 layers, every third with attention, one kv head
    of 256, width 2560 and 4 taps. On an H200, {"memory": 141e9, "bandwidth": 4.8e12, "rate":
    989.4e12}, with 206 chats of 8192 tokens in 2 ms, that is (2432, 4199051264, 0.0019993…).
    """
    # Your code here.
    raise NotImplementedError


def packed(x, log_a, begins, initial=None):
    """The states of the RG-LRU over packed documents, [T, D], in few operations.

    x [T, D] is what the input gates let through, log_a [T, D] the logarithms of the decays, from 0,
    where a gate is shut, by way of -1e-12 down to -1e4. begins [T] is True at the first token of a
    document. That has no past, and enters unscaled, whatever its decay; elsewhere

        h_t = a_t h_{t-1} + sqrt(1 - a_t^2) x_t.

    `initial` [D] is the state before token 0, whose document then began earlier, unless begins[0]
    says otherwise; without it a document begins at token 0. All are float32, as is what you return,
    but begins, bool. Each number of a state has to be right to 1e-4 of the sum of what is in it,
    all taken positive: what each token has written, as far as it is still there.

    In the graded run, T = 512 and D = 4, there are 350 operations and 128 KiB for what they make.
    An operation is what a GPU would launch a kernel for; views, such as slices, are none.
    """
    # Your code here.
    raise NotImplementedError


def extend(q, k, v, keys, values, first: int, slope: float):
    """Local attention of a piece of a sequence, through a ring: o [T, V].

    q, k [T, K] and v [T, V] are those of one head for the tokens at positions first, first + 1, …
    keys [W, K] and values [W, V] are the ring: position p has slot p % W. Slots in which no token
    has been yet hold NaN. A query at position p sees the keys of positions p - W + 1 up to p, its
    own among them, with the scores q k / sqrt(K) - slope (p - position of the key).

    Write into the ring what the next piece needs, every token into its slot. T may be 1, as in
    decoding, or longer than W, as in a prompt. All is float32.

    In the graded run, T = 320, W = 16 and K = V = 4, there are 1,200 operations, counted as in
    `packed`, and 384 KiB for what they make.
    """
    # Your code here.
    raise NotImplementedError


def convolve(x, weight, lengths: list[int], begins: list[int], rank: int, send, recv):
    """The temporal convolution of packed documents whose tokens lie on several ranks: y as x.

    Of one sequence rank r has the next lengths[r] tokens behind those of rank r - 1; x
    [lengths[rank], D] are this rank's. weight [taps, D] has the factors, weight[0] of a token's own
    channel and weight[j] of the one j tokens before it:

        y_t = weight[0] x_t + weight[1] x_{t-1} + … + weight[taps - 1] x_{t-taps+1}

    as far as those tokens are of its document. begins has the positions in the sequence at which
    documents begin, in order, 0 the first of them. float64.

    send(rows, to) sends rows [m, D], m at least 1, to a rank, and does not wait; recv(source) gives
    what that rank sends here next, and waits for it. Messages from one rank come in order. Receive
    all that is sent to you. A rank may have no tokens, or fewer than taps - 1.

    Bytes: a rank is sent the rows in front of its own that its tokens see, each once, and no other;
    nothing if it has no tokens. Rounds: nobody may have to receive before it can send.
    """
    # Your code here.
    raise NotImplementedError


def scan_back(
    p_a, p_h, p_dh, p_begins, p_initial, p_dlast, p_dlog_a, p_du, p_dinitial,
    T, D, BLOCK: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as scan_back[(B, ceil(D / BLOCK))](…): the scan's gradients, packed.

    Forward was h_t = a_t h_{t-1} + u_t from the state `initial` on, and h_t = u_t, whatever a_t,
    where begins is 1: there a document begins. a, h and dh, what the loss has for each h [B, T, D];
    begins [B, T] of int32, 0 or 1; initial and dlast [B, D]: what flows back into the last state
    from behind, beside its dh. float32, and all lie element after element.

    Store the gradients of log a (not of a), of u [B, T, D] and of initial [B, D]. Program (b, j)
    has sequence b and its channels from j * BLOCK up to (j + 1) * BLOCK. BLOCK is a power of two;
    T and D are any numbers of at least 1.

    Load nothing twice in a program, nor what belongs to others, and store each result once. All has
    to be loaded but h of the last token, and where a document begins, its a and what was before it.
    Touch no memory beyond the tensors' ends. The grader adds triton.jit.
    """
    # Your code here.
    raise NotImplementedError
