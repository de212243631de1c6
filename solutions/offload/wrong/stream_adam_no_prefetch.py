"""Never prefetches: a piece is read when the one before it is written."""

KIND = "part left out"
FAILS = [
    "test_stream_adam_ahead",
    "test_stream_adam_any",
    "test_stream_adam_memory",
]


def stream_adam(store, pieces, step, lr, beta1, beta2, eps):
    names = "weight", "mean", "square", "gradient"
    rise1, rise2 = 1 - beta1**step, 1 - beta2**step
    for piece in range(pieces):
        weight, mean, square, gradient = (store.read(f"{name} {piece}") for name in names)
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = square.div(rise2).sqrt_().add_(eps)
        weight.addcdiv_(mean, size, value=-lr / rise1)
        for name, tensor in zip(names, (weight, mean, square), strict=False):
            store.write(f"{name} {piece}", tensor)
        del weight, mean, square, gradient, size, tensor
