"""Keeps to the rails, with a message for each chunk."""

KIND = "too many bytes"
FAILS = ["test_swap_rails", "test_swap_steps", "test_swap_any"]


def swap(nodes: int, local: int) -> list[list[Send]]:
    n = nodes * local
    everyone = [(v, i) for v in range(nodes) for i in range(local)]
    steps = []
    for k in range(1, local):  # to the rank of the same node that is on the target's rail
        steps.append([])
        for v, i in everyone:
            s, j = v * local + i, (i + k) % local
            targets = range(j, n, local)
            steps[-1] += [Send(s, v * local + j, s * n + t, False) for t in targets]
    for k in range(1, nodes):
        for place in range(local):
            steps.append([])
            for v, i in everyone:
                t, s = (v + k) % nodes * local + i, v * local + place
                steps[-1].append(Send(v * local + i, t, s * n + t, False))
    return steps
