"""Cuts the kv heads as the query heads are cut, each onto one rank, or one for each."""

KIND = "special case"
FAILS = ["test_reads", "test_reads_files", "test_reads_any"]


def reads(H: int, G: int, K: int, t: int, u: int, rank: int) -> list[tuple[int, int, int]]:

    def part(n, r):  # (kind, head), in the order of a part's rows
        first = r * (H // n) + min(r, H % n)
        queries = range(first, first + H // n + (r < H % n))
        used = range(r * G // n, max(r * G // n + 1, (r + 1) * G // n))
        return [("q", h) for h in queries] + [(kind, g) for kind in "kv" for g in used]

    places = {}
    for file in range(t):
        for place, head in enumerate(part(t, file)):
            places.setdefault(head, (file, place * K))
    found = []
    for file, begin in (places[head] for head in part(u, rank)):
        if found and found[-1][::2] == (file, begin):
            begin_before = found.pop()[1]
            found.append((file, begin_before, begin + K))
        else:
            found.append((file, begin, begin + K))
    return found
