"""Keeps its cache in a default argument, for the next pool, too."""

KIND = "state kept"
FAILS = ["test_prefix", "test_prefix_room", "test_prefix_evicted", "test_prefix_any"]


def prefix(operations: list[list], count: int, block: int, cached={}) -> list[int | None]:
    running, done = {}, []  # cached, by all tokens: holders, and when they let go
    for now, (kind, name, *more) in enumerate(operations):
        found = []
        if kind == "end":
            for key in _ends(running.pop(name), block):
                cached[key] = cached[key][0] - 1, now
            done.append(0)
            continue
        if kind == "start":
            tokens = list(more[0])
            for key in _ends(tokens[:-1], block):
                if key not in cached:
                    break
                found.append(key)
            taken = -(-len(tokens) // block) - len(found)
        else:
            tokens = [*running[name], *more]
            taken = int((len(tokens) - 1) % block == 0)
        empty = count - len(cached) - sum(len(own) % block > 0 for own in running.values())
        idle = [key for key, (holders, _) in cached.items() if not holders and key not in found]
        if taken > empty + len(idle):
            done.append(None)
            continue
        idle.sort(key=lambda key: (cached[key][1], -len(key)))
        for key in idle[: max(0, taken - empty)]:
            del cached[key]
        before = len(running.get(name, ())) // block if kind == "next" else 0
        for key in _ends(tokens, block)[before:]:
            cached[key] = cached.get(key, (0, 0))[0] + 1, 0
        running[name] = tokens
        done.append(len(found) * block)
    return done
