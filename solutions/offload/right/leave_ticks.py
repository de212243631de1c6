"""Second by second, with what each lane is at."""


def leave(layers, room):
    n = len(layers)
    best = None
    for bits in range(2**n):
        away = [i for i in range(n) if bits & 2**i]
        moved = sum(layers[i][3] for i in away)
        lanes = [
            [(0, i) for i in range(n)] + [(1, i) for i in reversed(range(n))],
            [(2, i) for i in away],
            [(3, i) for i in reversed(away)],
        ]
        left, done, free, still = [0, 0, 0], set(), room, 0
        now = 0
        while lanes[0]:
            if best and now > best[0]:
                break
            begun = True
            for k in range(3):
                if left[k] or not lanes[k]:
                    continue
                what, i = lanes[k][0]
                need = {0: [], 1: [(3, i)] * (i in away), 2: [(0, i)], 3: [(0, n - 1), (2, i)]}[
                    what
                ]
                size = layers[i][3] * (what in (0, 3))
                if all(one in done for one in need) and size <= free:
                    free -= size
                    left[k] = layers[i][min(what, 2)]
            begun = any(left)
            if not begun:
                break
            now += 1
            for k in range(3):
                if left[k]:
                    left[k] -= 1
                    if not left[k]:
                        what, i = lanes[k].pop(0)
                        done.add((what, i))
                        free += layers[i][3] * (what in (1, 2))
        else:
            one = now, moved, away
            best = min(best, one) if best else one
    return (best[0], best[2]) if best else None
