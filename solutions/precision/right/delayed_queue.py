"""A queue of a limited length, and the exponent from a logarithm, mended where it is off."""


def delayed(steps, top, least, length, margin):
    from collections import deque
    from math import floor, isfinite, log2

    queue, power, told = deque(maxlen=length), 0, []
    for numbers in steps:
        most = max(queue, default=0.0)
        if most > 0 and isfinite(most):
            power = floor(log2(top / most)) - margin
            if most * 2.0 ** (power + margin + 1) <= top:
                power += 1
            if most * 2.0 ** (power + margin) > top:
                power -= 1
        sizes = [abs(x) * 2.0**power for x in numbers]
        beyond = len([x for x in sizes if x > top])
        small = len([x for x in sizes if x != 0 and x + x <= least])
        told.append((2.0**power, beyond, small))
        queue.append(max(map(abs, numbers)) if numbers else 0.0)
    return told
