"""Cuts the rows of the fused weight as one matrix: each rank has as many rows as it must."""

KIND = "wrong formula"
FAILS = ["test_reads", "test_reads_files", "test_reads_any"]


def reads(H: int, G: int, K: int, t: int, u: int, rank: int) -> list[tuple[int, int, int]]:
    heads = [*range(H + 2 * G)]

    def part(n, r):
        size, more = divmod(len(heads), n)
        first = r * size + min(r, more)
        return heads[first : first + size + (r < more)]

    places = {}
    for file in range(t):
        for place, head in enumerate(part(t, file)):
            places.setdefault(head, (file, place * K))
    found = []
    for file, begin in (places[head] for head in part(u, rank)):
        if found and found[-1][::2] == (file, begin):
            found.append((file, found.pop()[1], begin + K))
        else:
            found.append((file, begin, begin + K))
    return found
