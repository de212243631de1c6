"""Leaves out what cannot end earlier even if all clusters were evenly busy."""


def launch(chip, work):
    from bisect import insort

    K, T = work["key"], work["tokens"]
    found = None
    for c in (1, 2, 4):
        for w in range(1, 5):
            room = chip["registers"] // 128 - (24, 24, 32, 32)[w - 1]
            for n in range(16, 257, 16):
                bytes_ = 2 * K * (64 * w + 4 * n) + 1024
                needed = (2 * K + 3 * n) // 4 + 24
                if c > chip["sms"] or bytes_ > chip["shared"] or needed > min(240, room // w & -8):
                    continue
                load = 4 * n * K * chip["sms"] / (c * chip["l2"])
                step = max(256 * w * n * K / chip["matmul"], 64 * w * n / chip["exp"], load)
                step += chip["wait"]
                wide = 64 * w * c
                ends = [T] * -(-T // wide)
                if work["causal"]:
                    ends[:-1] = range(wide, T, wide)
                costs = [(end + n - 1) // n * step + chip["begin"] for end in ends] * work["heads"]
                clusters = chip["sms"] // c
                if found and sum(costs) / clusters > found[3] * (1 + 1e-12):
                    continue
                costs.sort()
                free = [0.0] * clusters
                while costs:
                    insort(free, free.pop(0) + costs.pop())
                if not found or free[-1] < found[3]:
                    found = w, n, c, free[-1]
    return found
