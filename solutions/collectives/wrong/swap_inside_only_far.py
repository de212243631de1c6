"""Brings to the rails what is for other nodes, and forgets the own one."""

KIND = "part left out"
FAILS = ["test_swap", "test_swap_rails", "test_swap_steps", "test_swap_any"]


def swap(nodes: int, local: int) -> list[list[Send]]:
    n = nodes * local
    everyone = [(v, i) for v in range(nodes) for i in range(local)]
    steps = []
    for k in range(1, local):  # to the rank of the same node that is on the target's rail
        steps.append([])
        for v, i in everyone:
            s, j = v * local + i, (i + k) % local
            targets = [t for t in range(j, n, local) if t // local != v]
            steps[-1] += [Send(s, v * local + j, s * n + t, False) for t in targets]
    for k in range(1, nodes):
        steps.append([])
        for v, i in everyone:
            t = (v + k) % nodes * local + i
            sources = range(v * local, (v + 1) * local)
            steps[-1] += [Send(v * local + i, t, s * n + t, False) for s in sources]
    return steps
