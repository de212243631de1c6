"""To the left, with what each has in sets."""


def gather(n: int) -> list[list[Send]]:
    has = [{r} for r in range(n)]
    steps = []
    for far in reversed([1 << b for b in range((n - 1).bit_length())]):
        step = []
        for r in range(n):
            t = (r - far) % n
            step += [Send(r, t, c, False) for c in sorted(has[r]) if (c - r) % n + far < n]
        for send in step:
            has[send.target].add(send.chunk)
        steps.append(step)
    return steps
