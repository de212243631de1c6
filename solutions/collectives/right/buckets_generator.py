"""The ends of calls by a generator, the ways by product."""


def _ends(bucketed, slow, price):
    time = end = 0.0
    for nbytes, work in bucketed:
        busy = max(0.0, end - time)
        time += work / slow if work <= busy * slow else busy + work - busy * slow
        end = max(time, end) + price(nbytes)
        yield end


def buckets(cluster: dict, grads: list[tuple[float, float]]) -> tuple[int, str, str, float]:
    from functools import partial
    from itertools import product
    from math import log2

    nodes, gpus = cluster["nodes"], cluster["gpus"]
    n, levels = nodes * gpus, round(log2(nodes))

    def price(algorithm, costs, nbytes):
        start, inside, outside = costs[algorithm]
        rate = min(cluster["wire"], cluster["port"] * gpus) * costs["share"]
        if algorithm == "Tree":
            start += 2 * (gpus - 1) * inside + 2 * levels * outside
            return start + 2 * nbytes / min(0.78 * rate, costs["most"])
        if algorithm == "NVLS":
            start += 2 * levels * (inside + outside)
        else:
            start += (2 * n - 2 - 2 * nodes) * inside + 2 * nodes * outside
        return start + 2 * (n - 1) / n * nbytes / min(rate, costs["most"])

    best = None
    for k, protocol in product(range(1, len(grads) + 1), cluster["protocols"]):
        parts = [grads[i : i + k] for i in range(0, len(grads), k)]
        bucketed = [tuple(map(sum, zip(*part, strict=True))) for part in parts]
        costs = cluster["protocols"][protocol]
        for algorithm in {"Ring", "Tree", "NVLS"} & set(costs):
            slow = 1 - cluster["taken"][algorithm] / cluster["sms"]
            *_, end = _ends(bucketed, slow, partial(price, algorithm, costs))
            if best is None or end < best[3]:
                best = k, algorithm, protocol, end
    return best
