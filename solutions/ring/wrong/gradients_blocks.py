"""Sends its block, and waits until it is through, before it posts a receive."""

KIND = "wrong order"
FAILS = [
    "test_gradients",
    "test_gradients_layouts",
    "test_gradients_bytes",
    "test_gradients_alive",
    "test_gradients_overlap",
    "test_gradients_any",
]


def gradients(q, k, v, do, lse, delta, positions: list[list[int]], window, rank: int, wire):
    n, G, K = len(positions), k.shape[0], k.shape[2]

    def sees(reader, owner):
        back = (i - j for i in positions[reader] for j in positions[owner])
        return any(x >= 0 and (window is None or x < window) for x in back)

    def stops(owner):
        others = [(owner + step) % n for step in range(1, n)]
        return [owner, *(r for r in others if sees(r, owner))]

    def post(owner, source, tag):
        return wire.irecv([2, G, len(positions[owner]), K], source, tag)

    def part(owner, keys, values):  # of this rank's dq and of the owner's dk and dv
        return _block(q, keys, values, do, lse, delta, positions[rank], positions[owner], window)

    own, tours = stops(rank), [stops((rank - step) % n) for step in range(1, n)]
    tours = [tour for tour in tours if rank in tour]
    if len(own) > 1:
        wire.send(torch.stack([k, v]), own[1], 2 * rank)
    coming = [post(tour[0], tour[tour.index(rank) - 1], 2 * tour[0]) for tour in tours[:1]]
    dq, home = part(rank, k, v)
    for i, tour in enumerate(tours):
        owner, at = tour[0], tour.index(rank)
        after = tour[at + 1] if at + 1 < len(tour) else owner
        block = coming.pop().wait()
        if after != owner:
            wire.isend(block, after, 2 * owner)
        for then in tours[i + 1 : i + 2]:
            coming.append(post(then[0], then[then.index(rank) - 1], 2 * then[0]))
        so_far = post(owner, tour[at - 1], 2 * owner + 1) if at > 1 else None
        more, made = part(owner, *block)
        dq += more
        if so_far:
            made += so_far.wait()
        wire.isend(made, after, 2 * owner + 1)
        del block, so_far, more, made
    if len(own) > 1:
        home += post(rank, own[-1], 2 * rank + 1).wait()
    return dq, home[0], home[1]
