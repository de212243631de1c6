"""Fills the next buffer only when a gradient has come down."""

KIND = "too much time"
FAILS = [
    "test_two_way_overlap",
    "test_two_way_any",
]


def two_way(device, layers: int) -> None:
    up, compute, down = device.stream(), device.stream(), device.stream()
    coming, going = ([device.pinned() for _ in range(2)] for _ in range(2))
    weights, gradients = ([device.memory() for _ in range(2)] for _ in range(2))
    came, made, went = {}, {}, {}
    order = list(range(layers))[::-1]

    def bring(turn):
        if turn < layers:
            if turn >= 2:
                device.synchronize(came[turn - 2])
                device.wait(up, made[turn - 2])
            device.fill(coming[turn % 2], order[turn])
            device.copy(weights[turn % 2], coming[turn % 2], up)
            came[turn] = device.record(up)

    def collect(turn):
        if turn >= 0:
            device.synchronize(went[turn])
            device.add(going[turn % 2], order[turn])

    bring(0)
    bring(1)
    for turn, layer in enumerate(order):
        device.wait(compute, came[turn])
        if turn >= 2:
            device.wait(compute, went[turn - 2])
        device.matmul(gradients[turn % 2], weights[turn % 2], layer, compute)
        made[turn] = device.record(compute)
        device.wait(down, made[turn])
        device.copy(going[turn % 2], gradients[turn % 2], down)
        went[turn] = device.record(down)
        collect(turn)
        bring(turn + 2)
