"""From the largest tile down, and work of all multiprocessors in place of one's share."""


def tiling(m, n, k, chip):
    from math import ceil

    found, slices = [], ceil(k / 64)
    for i in range(8, 3, -1):
        for j in range(8, 3, -1):
            a, b = 1 << i, 1 << j
            if i + j > 15 or chip["shared"] // 512 < a + b:
                continue
            for split in [s for s in (16, 8, 4, 2, 1) if s <= slices]:
                programs = ceil(m / a) * ceil(n / b) * split
                full = ceil(programs / chip["sms"]) * chip["sms"]  # as if the last wave were
                each = ceil(slices / split) * 64
                t = [full * 2 * a * b * each / chip["rate"], full * 2 * (a + b) * each / chip["l2"]]
                written = m * n * (4 * split if split > 1 else 2)
                t += [(2 * (m * k + k * n) + written) / chip["memory"], chip["start"]]
                rest = 0
                if split > 1:
                    rest = max((written + m * n * 2) / chip["memory"], chip["start"])
                found.append((max(t) + rest, a, b, split))
    best = min(found)
    return [*best[1:], best[0]]
