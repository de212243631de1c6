"""Has the first rank of each node send for all."""

KIND = "wrong formula"
FAILS = ["test_swap_rails", "test_swap_steps", "test_swap_any"]


def swap(nodes, local):
    n = nodes * local
    steps = []
    for i in range(1, local):
        first = range(0, n, local)
        steps.append([Send(v + i, v, (v + i) * n + t, False) for v in first for t in range(n)])
    for k in range(1, nodes):
        steps.append([])
        for v in range(0, n, local):
            w = (v + k * local) % n
            pairs = [(s, t) for s in range(v, v + local) for t in range(w, w + local)]
            steps[-1] += [Send(v, w, s * n + t, False) for s, t in pairs]
    for i in range(1, local):
        first = range(0, n, local)
        steps.append([Send(v, v + i, s * n + v + i, False) for v in first for s in range(n)])
    return steps
