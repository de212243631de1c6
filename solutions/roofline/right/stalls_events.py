"""With when each launch and each kernel ends, and what is left for overhead."""


def stalls(kernels, launch, depth, rate, bandwidth, start):
    walls = {"overhead": 0.0, "memory": 0.0, "compute": 0.0}
    launched, begun, ended = [], [], []
    for flops, nbytes, _ in kernels:
        i = len(ended)
        free = launched[-1] if i else 0.0
        if i and kernels[i - 1][2] and ended[-1] > free:
            free = ended[-1]
        if i - depth >= 0 and begun[i - depth] > free:
            free = begun[i - depth]
        launched.append(free + launch)
        begun.append(max([launched[-1], *ended[-1:]]))
        fetching, computing = nbytes / bandwidth, flops / rate
        if computing >= fetching and computing >= start:
            walls["compute"] += computing
        elif fetching >= start:
            walls["memory"] += fetching
        ended.append(begun[-1] + max(start, fetching, computing))
    walls["overhead"] = max(ended, default=0.0) - walls["memory"] - walls["compute"]
    return walls
