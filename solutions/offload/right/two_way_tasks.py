"""First a list of what the CPU does, in the order in which it does it."""


def two_way(device, layers):
    streams = {name: device.stream() for name in ("in", "gpu", "out")}
    buffers = {
        (name, i): make()
        for name, make in (
            ("in", device.pinned),
            ("w", device.memory),
            ("g", device.memory),
            ("out", device.pinned),
        )
        for i in (0, 1)
    }
    over = {}

    def given(name, turn):
        over[name, turn] = device.record(streams[name])

    def after(name, *what):
        if what in over:
            device.wait(streams[name], over[what])

    def up(t):
        if ("in", t - 2) in over:
            device.synchronize(over["in", t - 2])
        device.fill(buffers["in", t % 2], layers - 1 - t)
        after("in", "gpu", t - 2)
        device.copy(buffers["w", t % 2], buffers["in", t % 2], streams["in"])
        given("in", t)

    def work(t):
        after("gpu", "in", t)
        after("gpu", "out", t - 2)
        device.matmul(buffers["g", t % 2], buffers["w", t % 2], layers - 1 - t, streams["gpu"])
        given("gpu", t)

    def down(t):
        after("out", "gpu", t)
        device.copy(buffers["out", t % 2], buffers["g", t % 2], streams["out"])
        given("out", t)

    def take(t):
        device.synchronize(over["out", t])
        device.add(buffers["out", t % 2], layers - 1 - t)

    for step in range(layers + 3):
        for job, turn in ((work, step - 1), (take, step - 3), (down, step - 1), (up, step)):
            if 0 <= turn < layers:
                job(turn)
