"""What expert parallelism sends, and when that takes longer than computing."""

from collections.abc import Sequence

from weft.plan.arguments import few, positive, row, sizes, whole


def sent(tokens: int, width: int, e: int, k: int = 1, size: int = 2) -> float:
    """Bytes that one of e expert ranks sends for its own `tokens`, at even load.

    A row of `width` numbers goes to the expert of each of its k choices and comes back: the rank
    sends k tokens rows to others' experts, less those that stay, and as many results. A rank
    that has several of a token's experts is sent it several times.

    >>> sent(tokens=1024, width=512, e=8)
    1835008
    """
    tokens = whole("tokens", tokens, 0)
    width, e, k, size = sizes(width=width, e=e, k=k, size=size)
    total = 2 * k * tokens * width * size * (e - 1)
    return total / e if total % e else total // e


def sent_by(rank: int, kept: Sequence[Sequence[int]], width: int, size: int = 2) -> int:
    """Bytes that one rank sends for given routes, in dispatch and combine; in backward, as many.

    `kept` has a row for each of e ranks: how many of its choices each of E experts takes. Rank r
    has the r-th part of the experts, cut as torch.tensor_split cuts. It sends rows to others'
    experts, and what its own make of others' rows; a gradient goes the other way for each of both.

    >>> [sent_by(rank, [[2, 0], [1, 3]], width=10) for rank in (0, 1)]
    [20, 20]
    """
    rows = [row("kept", counts) for counts in row("kept", kept)]
    rows = [[whole("kept", count, 0) for count in counts] for counts in rows]
    e, E = len(rows), len(rows[0])
    if odd := [len(counts) for counts in rows if len(counts) != E]:
        raise ValueError(f"kept has rows of {E} and {odd[0]} experts, must have the same in each")
    rank, (width, size) = whole("rank", rank, 0, e - 1), sizes(width=width, size=size)
    first, last = (r * (E // e) + min(r, E % e) for r in (rank, rank + 1))
    own, come = sum(rows[rank][first:last]), sum(sum(counts[first:last]) for counts in rows)
    return (sum(rows[rank]) - own + come - own) * width * size


def distinct_ranks(experts: int, k: int, e: int) -> float:
    """On how many of e ranks a token's k experts lie, on average, if all are as likely.

    A rank has E / e of the experts. None of k is there with probability
    C(E - E / e, k) / C(E, k).

    >>> f"{distinct_ranks(256, k=8, e=8):.2f}", f"{distinct_ranks(256, k=8, e=64):.2f}"
    ('5.29', '7.68')
    """
    experts, k, e = sizes(experts=experts, k=k, e=e)
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    if experts % e:
        raise ValueError(f"e is {e}, must divide experts = {experts}")
    few(k, "choices", k=k)
    missed = 1.0
    for i in range(k):
        missed *= max(0, experts - experts // e - i) / (experts - i)
    return e * (1 - missed)


def sent_merged(
    tokens: int,
    width: int,
    e: int,
    experts: int,
    k: int = 1,
    out: float = 2,
    back: float = 2,
) -> float:
    """Bytes that one of e ranks sends for its tokens, once to each rank that they need.

    `out` and `back` are the bytes of a number on its way to the experts and home: the results of a
    token's experts on a rank are added there before they go back. With k copies it is `sent`.

    >>> f"{sent_merged(4096, 7168, e=8, experts=256, k=8) / 1e6:.0f} MB"
    '544 MB'
    """
    tokens, (width,) = whole("tokens", tokens, 0), sizes(width=width)
    out, back = positive(out=out, back=back)
    ranks = distinct_ranks(experts, k, e)
    return tokens * width * ranks * (e - 1) / e * (out + back)


def flops_per_byte(hidden: int, out: float = 2, back: float = 2, matrices: int = 3) -> float:
    """FLOPs of an expert's forward for each byte that its token travels: 2 matrices F / bytes.

    A row of D numbers meets `matrices` of D x F weights, three if gated; it travels D times
    `out` bytes to the expert and D times `back` home. Width, experts and k are no part of it.
    Where that is less than a chip's FLOP/s over a link's bytes per second, sending takes longer.

    >>> flops_per_byte(2048), flops_per_byte(2048, out=1)
    (3072.0, 4096.0)
    """
    hidden, matrices = sizes(hidden=hidden, matrices=matrices)
    out, back = positive(out=out, back=back)
    return 2 * matrices * hidden / (out + back)
