"""Waits for everything at once."""

KIND = "too much time"
FAILS = [
    "test_two_way_overlap",
    "test_two_way_any",
]


def two_way(device, layers):
    stream = device.stream()
    pinned, weights, gradient = device.pinned(), device.memory(), device.memory()
    for layer in range(layers)[::-1]:
        device.fill(pinned, layer)
        device.copy(weights, pinned, stream)
        device.matmul(gradient, weights, layer, stream)
        device.copy(pinned, gradient, stream)
        device.synchronize(device.record(stream))
        device.add(pinned, layer)
