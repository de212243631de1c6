"""With a queue of kernels that have not begun, and tuples to compare."""


def stalls(kernels, launch, depth, rate, bandwidth, start):
    from collections import deque

    waiting, out, now, free, blocked = deque(), {}, 0, 0, 0
    for flops, nbytes, read in kernels:
        host = max(free, blocked)
        if len(waiting) == depth:
            host = max(host, waiting.popleft())
        free = host + launch
        idle = max(0, free - now)
        seconds, _, wall = max(
            (start, 0, "overhead"), (nbytes / bandwidth, 1, "memory"), (flops / rate, 2, "compute")
        )
        out["overhead"] = out.get("overhead", 0) + idle
        out[wall] = out.get(wall, 0) + seconds
        waiting.append(now + idle)
        now += idle + seconds
        blocked = now if read else 0
    return {wall: out.get(wall, 0) for wall in ("compute", "memory", "overhead")}
