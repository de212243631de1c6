"""Which pairs of a query and a key count, where queries and keys lie on different ranks.

Two ranges of tokens with the same step make a rectangle of pairs whose visible part is a band
along the diagonal: query a sees the keys from a + low to a + high, not with it, as far as there
are any. So pairs are counted, and rectangles cut to what a kernel must compute, without a mask.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsIndex

from weft.plan.arguments import row, whole
from weft.plan.ring.layouts import Spans

STRIP = 128  # rows of a window's band that are cut out together, at least: a kernel has work to do


@dataclass(frozen=True)
class Visibility:
    """Which keys a query sees: all, those up to itself, the last `window` of these; its document.

    `documents` are the starts of documents laid end to end, and the end of all, T.
    """

    causal: bool = True
    window: int | None = None
    documents: tuple[int, ...] | None = None

    def __post_init__(self):
        if self.window is not None:
            object.__setattr__(self, "window", whole("window", self.window))
            if not self.causal:
                raise ValueError(f"window is {self.window}, must be None unless causal")
        if self.documents is not None:
            object.__setattr__(self, "documents", _starts(self.documents))

    @property
    def everywhere(self) -> bool:
        """Whether any rank's queries may see any rank's keys, but for their order."""
        return self.window is None and self.documents is None

    def check_length(self, T: int) -> None:
        """Refuse documents that do not end where the sequence does."""
        if self.documents is not None and self.documents[-1] != T:
            raise ValueError(f"documents end at {self.documents[-1]}, must end at T = {T}")


def _starts(documents: Sequence[SupportsIndex]) -> tuple[int, ...]:
    starts = [whole("documents", start, least=0) for start in row("documents", documents)]
    if starts[0] or len(starts) < 2 or starts != sorted(set(starts)):
        raise ValueError(f"documents is {starts}, must grow from 0 to T, from start to start")
    return tuple(starts)


class Rectangle(NamedTuple):
    """Some of a rank's queries and of a block's keys, by their places there.

    `kind` is "all", "causal" (as many queries as keys, each sees one key more than the one before)
    or "band": query a of these sees those keys from a + low on, before a + high.
    """

    rows: slice
    cols: slice
    kind: str
    low: int = 0
    high: int = 0


def pairs(queries: Spans, keys: Spans, see: Visibility) -> int:
    """How many pairs of them are visible.

    >>> pairs((range(4, 8),), (range(0, 8),), Visibility())
    26
    >>> pairs((range(4, 8),), (range(0, 8),), Visibility(window=2))
    8
    """
    return sum(
        _ramps(len(q), len(k), high) - _ramps(len(q), len(k), low)
        for _, q, _, k, low, high in _bands(queries, keys, see)
    )


def rectangles(queries: Spans, keys: Spans, see: Visibility) -> list[Rectangle]:
    """The visible pairs as rectangles: none is empty, no pair is in two, a band has few blanks.

    >>> zigzag = (range(2), range(6, 8)), (range(2, 4), range(4, 6))
    >>> [one.kind for one in rectangles(*zigzag, Visibility())]
    ['all']
    >>> rectangles((range(1, 9, 2),), (range(0, 8, 2),), Visibility())[0].kind
    'causal'
    """
    if queries == keys and see == Visibility():
        every = slice(0, sum(map(len, queries)))
        return [Rectangle(every, every, "causal")]
    found = [
        piece
        for i, q, j, k, low, high in _bands(queries, keys, see)
        for piece in _cut(i, len(q), j, len(k), low, high)
    ]
    return _joined(found)


def _bands(queries: Spans, keys: Spans, see: Visibility) -> Iterator[tuple]:
    """First place, range of queries; first place, range of keys; low and high of their band."""
    parts = list(_parts(keys, see.documents))
    for i, document, q in _parts(queries, see.documents):
        for j, other, k in parts:
            if document == other:
                low, high = -len(q), len(k)
                if see.causal:
                    high = (q[0] - k[0]) // q.step + 1
                if see.window is not None:
                    low = (q[0] - see.window - k[0]) // q.step + 1
                yield i, q, j, k, low, high


def _parts(spans: Spans, documents: tuple[int, ...] | None) -> Iterator[tuple[int, int, range]]:
    """First place, document and range of every part of the spans that lies in one document."""
    place = 0
    for span in spans:
        begin = 0
        while begin < len(span):
            end, document = len(span), 0
            if documents is not None:
                document = bisect_right(documents, span[begin])
                end = min(end, -((span.start - documents[document]) // span.step))
            yield place + begin, document, span[begin:end]
            begin = end
        place += len(span)


def _ramps(rows: int, cols: int, first: int) -> int:
    """Of row a the columns before a + first, all rows together."""

    def ramp(m: int) -> int:
        if m <= 0:
            return 0
        most = min(m - 1, cols)
        return most * (most + 1) // 2 + (m - 1 - most) * cols

    return ramp(rows + first) - ramp(first)


def _cut(i: int, rows: int, j: int, cols: int, low: int, high: int) -> list[Rectangle]:
    """A band as rectangles, without the rows and columns of which nothing is seen."""
    begin, end = max(0, 1 - high), min(rows, cols - low)
    if begin >= end or low >= high:
        return []
    first, last = max(0, begin + low), min(cols, end - 1 + high)
    if first >= last:
        return []
    if end - 1 + low > first:  # a window hides keys from the last row that the first one sees
        strip = max(STRIP, high - low)
        if end - begin > strip:
            firsts = range(begin, end, strip)
            return [
                piece
                for a in firsts
                for piece in _cut(i + a, min(strip, end - a), j, cols, low + a, high + a)
            ]
        at = slice(i + begin, i + end), slice(j + first, j + last)
        return [Rectangle(*at, "band", begin + low - first, begin + high - first)]
    full = min(end, max(begin, last - high))  # the first row that sees all columns
    found = []
    if full > begin:
        full = min(end, full + 1)
        corner = last - (full - begin)
        rows = slice(i + begin, i + full)
        if corner > first:
            found.append(Rectangle(rows, slice(j + first, j + corner), "all"))
        found.append(Rectangle(rows, slice(j + corner, j + last), "causal"))
    if full < end:
        found.append(Rectangle(slice(i + full, i + end), slice(j + first, j + last), "all"))
    return found


def _joined(found: list[Rectangle]) -> list[Rectangle]:
    """Those of which all is seen, joined where they have the same keys, or the same queries."""
    done: list[Rectangle] = []
    for piece in found:
        for at, other in enumerate(done):
            if piece.kind == other.kind == "all":
                if piece.cols == other.cols and piece.rows.start == other.rows.stop:
                    done[at] = other._replace(rows=slice(other.rows.start, piece.rows.stop))
                    break
                if piece.rows == other.rows and piece.cols.start == other.cols.stop:
                    done[at] = other._replace(cols=slice(other.cols.start, piece.cols.stop))
                    break
        else:
            done.append(piece)
    return done
