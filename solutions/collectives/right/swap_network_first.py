"""Over the own rail to the target's node, and from there inside it."""


def swap(nodes: int, local: int) -> list[list[Send]]:
    n = nodes * local
    steps = []
    for k in range(1, nodes):
        step = []
        for s in range(n):
            gate = (s + k * local) % n
            node = gate // local * local
            step += [Send(s, gate, s * n + t, False) for t in range(node, node + local)]
        steps.append(step)
    for k in range(1, local):
        step = []
        for gate in range(n):
            node, i = gate // local * local, gate % local
            t = node + (i - k) % local
            step += [Send(gate, t, s * n + t, False) for s in range(i, n, local)]
        steps.append(step)
    return steps
