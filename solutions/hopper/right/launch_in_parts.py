"""Room, clocks of a step and the end in functions of their own; the least of all."""


def launch(chip, work):
    K, T, causal = work["key"], work["tokens"], work["causal"]

    def fits(w, n):
        each = (chip["registers"] // 128 - (24 if w < 3 else 32)) // w
        registers = K / 2 + n / 2 + n / 4 + 24
        return (128 * w + 8 * n) * K <= chip["shared"] - 1024 and registers <= min(
            240, each - each % 8
        )

    def step(w, n, c):
        matmuls, exponentials = 256 * w * n * K / chip["matmul"], 64 * w * n / chip["exp"]
        return max(matmuls, exponentials, 4 * n * K * chip["sms"] / chip["l2"] / c) + chip["wait"]

    def end(w, n, c):
        wide = 64 * w * c
        groups = -(-T // wide)
        steps = [-(-(min(T, (i + 1) * wide) if causal else T) // n) for i in range(groups)]
        clocks, each = [(0.0, i) for i in range(chip["sms"] // c)], step(w, n, c)
        from heapq import heappop, heappush

        for count in sorted(steps)[::-1]:
            for _ in range(work["heads"]):
                clock, i = heappop(clocks)
                heappush(clocks, (clock + count * each + chip["begin"], i))
        return max(clocks)[0]

    choices = [(w, n, c) for w in (4, 3, 2, 1) for n in range(16, 257, 16) for c in (1, 2, 4)]
    choices = [one for one in choices if fits(*one[:2]) and one[2] <= chip["sms"]]
    return min(((*one, end(*one)) for one in choices), key=lambda one: one[3], default=None)
