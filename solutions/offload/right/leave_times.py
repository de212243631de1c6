"""Looks, for each thing that takes room, for the first of all times at which there is enough."""

from itertools import combinations


def leave(layers, room):
    n = len(layers)

    def seconds(away):
        spans = []  # [from, to, bytes]; None: not known yet

        def first(now, size):
            if size > room:
                return None
            for at in sorted({now, *(to for _, to, _ in spans if to is not None and to > now)}):
                there = sum(s for begin, to, s in spans if begin <= at and (to is None or to > at))
                if there + size <= room:
                    return at
            return None

        gpu, link, came_down, own = 0, 0, {}, {}
        for i, (forward, _, copy, size) in enumerate(layers):
            gpu = first(gpu, size)
            if gpu is None:
                return None
            own[i] = [gpu, None, size]
            spans.append(own[i])
            gpu += forward
            if i in away:
                link = came_down[i] = own[i][1] = max(link, gpu) + copy
        link = gpu
        for i in range(n - 1, -1, -1):
            _, backward, copy, size = layers[i]
            if i in away:
                begin = first(max(link, came_down[i]), size)
                if begin is None:
                    return None
                own[i] = [begin, None, size]
                spans.append(own[i])
                link = begin + copy
                gpu = max(gpu, link)
            gpu += backward
            own[i][1] = gpu
        return gpu

    found = []
    for count in range(n + 1):
        for away in combinations(range(n), count):
            took = seconds(away)
            if took is not None:
                found.append((took, sum(layers[i][3] for i in away), list(away)))
    if not found:
        return None
    took, _, away = min(found)
    return took, away
