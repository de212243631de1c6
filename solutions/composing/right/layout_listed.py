"""Lists everything, memory first, and takes the least; layers are dealt one by one."""

from itertools import product


def layout(cluster: dict, model: dict, batch: int) -> tuple | None:
    n, node, L = cluster["gpus"], cluster["node"], model["layers"]
    inside, outside, s = cluster["inside"], cluster["outside"], model["tokens"]
    found = []
    for t, p in product(range(1, node + 1), range(1, L + 1)):
        if node % t or model["heads"] % t or n % (t * p) or batch % (n // t // p):
            continue
        d = n // t // p
        m = batch // d
        pace = 6 * s / t / cluster["rate"]
        layer = pace * model["layer"] + 16 * (1 - 1 / t) * s * model["width"] / inside
        head = pace * model["head"]
        first, last, slowest = L, L, L * layer + head
        if p > 1:
            slowest = None
            for k in range(L + 1):  # ever more layers on the last rank
                dealt = [0] * (p - 1)
                for i in range(L - k):
                    dealt[i % (p - 1)] += 1
                takes = max(dealt[0] * layer, k * layer + head)
                if slowest is None or takes < slowest:
                    first, last, slowest = dealt[0], k, takes
        on_first, on_last = first * model["layer"], last * model["layer"] + model["head"]
        link = inside if t * d <= node else outside
        message = max(on_first, on_last) / t * 2 * (1 - 1 / d) / link
        hop = 2 * s * model["width"] / t / (inside if n <= node else outside)
        for v, zero in product(range(1, L + 1), (1, 3)):
            if p * v > L or (v > 1 and (p == 1 or m % p)):
                continue
            early, late = ((v + 1) * p - 1) / v, (v * p - p + 1) / v
            if v == 1:
                early, late = min(p, m), 1
            if zero == 1:
                state, more = 6 + 12 / d, 0
                seconds = (m + (p - 1) / v) * slowest + max(2 * message - slowest, 0)
            else:
                state, more = 18 / d, 2 * max(model["layer"], model["head"])
                seconds = (m + (p - 1) / v) * max(slowest, 3 * message)
            if p > 1:
                seconds += 2 * v * m * hop
            bytes_last = on_last * state + late * last * model["kept"] + 4 * s * model["words"]
            bytes_first = on_first * state + early * first * model["kept"]
            most = (bytes_last if p == 1 else max(bytes_first, bytes_last)) + more
            found.append((t, p, d, v, zero, most / t, seconds))
    found = [one for one in found if one[5] <= 0.9 * cluster["memory"]]
    return min(found, key=lambda one: one[6], default=None)
