"""For each k lengthens the time between copies step by step while that helps, in large strides
first."""


def rhythm(runs: list, hours: float, share: float, costs: dict) -> tuple | None:
    found = []
    for i, (gpus, step) in enumerate(runs):
        M = 3600 * hours / gpus

        def lost(a, k, M=M, step=step):
            near = a * step / 2 + costs["near"]
            far = k * a * step / 2 + costs["far"]
            stops = costs["copy"] / (a * step) + costs["write"] / (k * a * step)
            return stops + share * near / M + (1 - share) * far / M

        for k in range(1, 101):
            a, stride = 1, 1 << 20
            while stride:
                while lost(a + stride, k) < lost(a, k):
                    a += stride
                while a > stride and lost(a - stride, k) < lost(a, k):
                    a -= stride
                stride //= 2
            found.append(((1 - lost(a, k)) * 86400 / step, i, a, k))
    steps, i, a, k = max(found)
    return (i, a, k, steps) if steps > 0 else None
