"""Gives room back when the copy down begins."""

KIND = "wrong order"
FAILS = [
    "test_leave",
    "test_leave_best",
    "test_leave_any",
]


def leave(layers: list[tuple[int, int, int, int]], room: int) -> tuple[int, list[int]] | None:
    n, best = len(layers), None
    for choice in range(1 << n):
        away = [i for i in range(n) if choice >> i & 1]
        held, frees, gpu, link, down = 0, [], 0, 0, {}

        def wait(size, now):
            """The time from which on there is room, which is taken; None if there never is."""
            nonlocal held
            frees.sort()
            while held + size > room and frees:  # noqa: B023
                end, gone = frees.pop(0)  # noqa: B023
                now, held = max(now, end), held - gone
            held += size
            return now if held <= room else None

        for i, (forward, _, copy, size) in enumerate(layers):
            gpu = wait(size, gpu)
            if gpu is None:
                break
            gpu += forward
            if i in away:
                down[i] = link = max(link, gpu) + copy
                frees.append((link - copy, size))
        link = gpu
        for i in reversed(range(n)):
            _, backward, copy, size = layers[i]
            if gpu is not None and i in away:
                link = wait(size, max(link, down[i]))
                gpu = None if link is None else max(gpu, link := link + copy)
            if gpu is None:
                break
            gpu += backward
            frees.append((gpu, size))
        if gpu is not None:
            one = gpu, sum(layers[i][3] for i in away), away
            best = one if best is None else min(best, one)
    return best and (best[0], best[2])
