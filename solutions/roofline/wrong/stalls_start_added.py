"""Adds the start to every kernel, where it is the least that one takes."""

KIND = "wrong formula"
FAILS = [
    "test_stalls",
    "test_stalls_read",
    "test_stalls_queue",
    "test_stalls_any",
]


def stalls(
    kernels: list[tuple[float, float, bool]],
    launch: float,
    depth: int,
    rate: float,
    bandwidth: float,
    start: float,
) -> dict[str, float]:
    spent = dict.fromkeys(("overhead", "memory", "compute"), 0.0)
    host = device = 0.0
    begun = []
    for i, (flops, nbytes, _) in enumerate(kernels):
        if i and kernels[i - 1][2]:
            host = max(host, device)
        if i >= depth:
            host = max(host, begun[i - depth])
        host += launch
        begin = max(host, device)
        spent["overhead"] += begin - device
        times = {"compute": flops / rate, "memory": nbytes / bandwidth, "overhead": start}
        wall = max(times, key=times.__getitem__)
        spent[wall] += times[wall]
        begun.append(begin)
        spent["overhead"] += start * (wall != "overhead")
        device = begin + times[wall] + start * (wall != "overhead")
    return spent
