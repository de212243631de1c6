"""Has backward slowed by the last call alone, although others run before it."""

KIND = "special case"
FAILS = ["test_buckets_taken", "test_buckets_any"]


def buckets(cluster: dict, grads: list[tuple[float, float]]) -> tuple[int, str, str, float]:
    nodes, gpus = cluster["nodes"], cluster["gpus"]
    n, levels = nodes * gpus, nodes.bit_length() - 1
    rate = min(cluster["wire"], gpus * cluster["port"])

    def call(nbytes, algorithm, protocol):
        start, inside, outside = protocol[algorithm]
        part, sent, hops, across = 1.0, 2 * (n - 1) / n, 2 * (n - 1 - nodes), 2 * nodes
        if algorithm == "Tree":
            part, sent, hops, across = 0.78, 2, 2 * (gpus - 1), 2 * levels
        elif algorithm == "NVLS":
            hops, across = 2 * levels, 2 * levels
        speed = min(part * protocol["share"] * rate, protocol["most"])
        return start + hops * inside + across * outside + sent * nbytes / speed

    def last_end(k, algorithm, protocol):
        slow = 1 - cluster["taken"][algorithm] / cluster["sms"]
        now = begin = end = 0.0
        for first in range(0, len(grads), k):
            bucket = grads[first : first + k]
            work = sum(seconds for _, seconds in bucket)
            before = min(work, max(0.0, begin - now))
            beside = min(work - before, max(0.0, end - max(now, begin)) * slow)
            now += beside / slow + work - beside
            begin = max(now, end)
            end = begin + call(sum(nbytes for nbytes, _ in bucket), algorithm, protocol)
        return end

    ways = [
        (k, algorithm, name)
        for k in range(1, len(grads) + 1)
        for name, protocol in cluster["protocols"].items()
        for algorithm in ("Ring", "Tree", "NVLS")
        if algorithm in protocol
    ]
    protocols = cluster["protocols"]
    seconds, way = min((last_end(k, a, protocols[p]), (k, a, p)) for k, a, p in ways)
    return (*way, seconds)
