"""Goes from gradient to gradient, with the time at which the wire is free."""


def buckets(cluster: dict, grads: list[tuple[float, float]]) -> tuple[int, str, str, float]:
    v, g = cluster["nodes"], cluster["gpus"]
    n, deep = v * g, 0
    while 1 << deep < v:
        deep += 1
    found = {}
    for protocol, costs in cluster["protocols"].items():
        for algorithm, (inside, outside, sent, part) in {
            "Ring": (n - 1 - v, v, (n - 1) / n, 1),
            "Tree": (g - 1, deep, 1, 0.78),
            "NVLS": (deep, deep, (n - 1) / n, 1),
        }.items():
            if algorithm not in costs:
                continue
            wire = min(cluster["wire"], g * cluster["port"]) * costs["share"] * part
            begin, a, b = costs[algorithm]
            fixed, each = (
                begin + 2 * (inside * a + outside * b),
                2 * sent / min(wire, costs["most"]),
            )
            left = (cluster["sms"] - cluster["taken"][algorithm]) / cluster["sms"]
            for k in range(1, len(grads) + 1):
                time = free = held = 0.0
                for i, (nbytes, seconds) in enumerate(grads, 1):
                    held += nbytes
                    slowed = seconds / left
                    if time + slowed <= free:
                        time += slowed
                    elif time < free:
                        time = free + seconds - (free - time) * left
                    else:
                        time += seconds
                    if i % k == 0 or i == len(grads):
                        free, held = max(free, time) + fixed + each * held, 0.0
                found[k, algorithm, protocol] = free
    return min(((*way, seconds) for way, seconds in found.items()), key=lambda way: way[3])
