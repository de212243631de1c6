"""Finds heads where they were in the files of the call before."""

KIND = "state kept"
FAILS = ["test_reads", "test_reads_files", "test_reads_any"]


def reads(H, G, K, t, u, rank, places={}):
    def part(n, r):  # (kind, head), in the order of a part's rows
        first = r * (H // n) + min(r, H % n)
        queries = range(first, first + H // n + (r < H % n))
        used = range(queries[0] * G // H, queries[-1] * G // H + 1)
        return [("q", h) for h in queries] + [(kind, g) for kind in "kv" for g in used]

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
