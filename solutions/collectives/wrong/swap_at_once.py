"""Sends to all ranks of the node in one step, and to all nodes in another."""

KIND = "wrong order"
FAILS = ["test_swap_steps", "test_swap_any"]


def swap(nodes: int, local: int) -> list[list[Send]]:
    n = nodes * local
    everyone = [(v, i) for v in range(nodes) for i in range(local)]
    steps = []
    for k in range(1, local):  # to the rank of the same node that is on the target's rail
        steps.append([]) if k == 1 else None
        for v, i in everyone:
            s, j = v * local + i, (i + k) % local
            targets = range(j, n, local)
            steps[-1] += [Send(s, v * local + j, s * n + t, False) for t in targets]
    for k in range(1, nodes):
        steps.append([]) if k == 1 else None
        for v, i in everyone:
            t = (v + k) % nodes * local + i
            sources = range(v * local, (v + 1) * local)
            steps[-1] += [Send(v * local + i, t, s * n + t, False) for s in sources]
    return steps
