"""Every row by itself, with a list of who has it, and neighbours joined at the end."""


def reads(H, G, K, t, u, rank):
    from itertools import groupby

    def rows(n, r):
        begins = [i * (H // n) + min(i, H % n) for i in range(n + 1)]
        mine = list(range(begins[r], begins[r + 1]))
        used = list(dict.fromkeys(h // (H // G) for h in mine))
        heads = mine + [H + g for g in used] + [H + G + g for g in used]
        return [head * K + i for head in heads for i in range(K)]

    files = [rows(t, i) for i in range(t)]
    found = []
    for row in rows(u, rank):
        for file, own in enumerate(files):
            if row in own:
                found.append((file, own.index(row)))
                break
    joined = []
    for _, run in groupby(enumerate(found), lambda one: (one[1][0], one[1][1] - one[0])):
        run = [one for _, one in run]
        joined.append((run[0][0], run[0][1], run[-1][1] + 1))
    return joined
