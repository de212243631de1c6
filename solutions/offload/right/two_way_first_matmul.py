"""A stream for weights and matmuls' events kept in lists; adds come one layer behind the copies."""


def two_way(device, layers):
    up, gpu, down = (device.stream() for _ in "abc")
    pins = [device.pinned() for _ in range(4)]
    places = [device.memory() for _ in range(4)]
    ups, works, downs = [], [], []
    for turn in range(layers + 2):
        if turn < layers:
            if turn > 1:
                device.synchronize(ups[turn - 2])
            device.fill(pins[turn & 1], layers - 1 - turn)
            if turn > 1:
                device.wait(up, works[turn - 2])
            device.copy(places[turn & 1], pins[turn & 1], up)
            ups.append(device.record(up))
            device.wait(gpu, ups[turn])
            if turn > 1:
                device.wait(gpu, downs[turn - 2])
            device.matmul(places[2 + (turn & 1)], places[turn & 1], layers - 1 - turn, gpu)
            works.append(device.record(gpu))
        if turn > 1:
            device.synchronize(downs[turn - 2])
            device.add(pins[2 + (turn & 1)], layers + 1 - turn)
        if turn < layers:
            device.wait(down, works[turn])
            device.copy(pins[2 + (turn & 1)], places[2 + (turn & 1)], down)
            downs.append(device.record(down))
