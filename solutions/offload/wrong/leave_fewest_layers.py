"""Of equal seconds takes the choice with the fewest layers, not with the fewest bytes."""

KIND = "special case"
FAILS = [
    "test_leave_best",
    "test_leave_any",
]


def leave(layers: list[tuple[int, int, int, int]], room: int) -> tuple[int, list[int]] | None:
    n = len(layers)

    def step(away):
        """The seconds of a step; infinite if it waits for room that never comes."""
        held, frees, down = 0, [], {}  # bytes, ends with the bytes that they free

        def wait(size, now):
            nonlocal held
            frees.sort()
            while held + size > room and frees:
                end, gone = frees.pop(0)
                now, held = max(now, end), held - gone
            held += size
            return now if held <= room else float("inf")

        gpu = link = 0
        for i, (forward, _, copy, size) in enumerate(layers):
            gpu = wait(size, gpu) + forward
            if i in away:
                link = down[i] = max(link, gpu) + copy
                frees.append((link, size))
        link = gpu
        for i, (_, backward, copy, size) in reversed([*enumerate(layers)]):
            if i in away:
                link = wait(size, max(link, down[i])) + copy
                gpu = max(gpu, link)
            gpu += backward
            frees.append((gpu, size))
        return gpu

    choices = [[i for i in range(n) if choice >> i & 1] for choice in range(1 << n)]
    seconds, away = min(((step(x), x) for x in choices), key=lambda x: (x[0], len(x[1])))
    return None if seconds == float("inf") else (seconds, away)
