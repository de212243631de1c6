"""Chunk by chunk: its way, and in which steps."""


def swap(nodes: int, local: int) -> list[list[Send]]:
    n = nodes * local
    steps = [[] for _ in range(local + nodes - 2)]
    for s in range(n):
        for t in range(n):
            (v, i), (w, j) = divmod(s, local), divmod(t, local)
            gate = v * local + j
            if gate != s:
                steps[(j - i) % local - 1].append(Send(s, gate, s * n + t, False))
            if gate != t:
                steps[local - 2 + (w - v) % nodes].append(Send(gate, t, s * n + t, False))
    return steps
