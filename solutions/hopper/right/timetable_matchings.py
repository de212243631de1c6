"""Peels one matching for each step, of all who still have the most to do."""


def timetable(sees):
    names = sorted({j for tiles in sees for j in tiles})
    n = max(len(sees), len(names))
    left = [[0] * n for _ in range(n)]  # parts between a program and a dQ, some made up
    for i, tiles in enumerate(sees):
        for j in tiles:
            left[i][names.index(j)] = 1
    real = [list(row) for row in left]
    steps = max([*map(sum, left), *map(sum, zip(*left)), 0])
    for i in range(n):  # made up, until everybody has as many
        for j in range(n):
            more = min(steps - sum(left[i]), steps - sum(row[j] for row in left))
            left[i][j] += more

    def find(i, seen, of):
        for j in range(n):
            if left[i][j] and j not in seen:
                seen.add(j)
                if j not in of or find(of[j], seen, of):
                    of[j] = i
                    return True
        return False

    rows = [[] for _ in sees]
    for _ in range(steps):
        of = {}
        for i in range(n):
            find(i, set(), of)
        for j, i in of.items():
            left[i][j] -= 1
            if i < len(sees):
                rows[i].append(names[j] if real[i][j] else None)
                real[i][j] = 0
    return rows
