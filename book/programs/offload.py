"""Train a model that its device cannot hold: weights come layer by layer, Adam runs on the CPU.

Run it with python offload.py [MICROBATCHES].
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional as F

WIDTH, LAYERS, TOKENS, STEPS = 256, 12, 64, 5
gpu = torch.cuda.is_available()
device = "cuda" if gpu else "cpu"


class CopyStream:
    """Copies beside the computing, in order: a CUDA stream, or a thread."""

    def __init__(self):
        self.bytes = 0
        self.stream = torch.cuda.Stream() if gpu else ThreadPoolExecutor(1)

    def copy(self, target, source):
        """Start a copy when all launched so far is done; returns its end."""
        self.bytes += source.nbytes
        if gpu:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                target.copy_(source, non_blocking=True)
                return self.stream.record_event()
        end = self.stream.submit(target.copy_, source)
        end.wait = end.synchronize = end.result  # as a CUDA event calls them
        return end


class Offloaded:
    """Master weights, gradients and Adam in host memory; two layers on the device."""

    def __init__(self, start):
        self.masters, self.adam = optimizer(start, "cpu")
        half = {"dtype": torch.bfloat16, "pin_memory": gpu}
        self.weights = [torch.empty(w.shape, **half).copy_(w) for w in start]
        self.landing = [torch.empty(w.shape, **half) for w in start[:2]]
        self.slots = [w.to(device, copy=True) for w in self.weights[:2]]
        self.up, self.down, self.sent = CopyStream(), CopyStream(), None

    def fetched(self, order):
        """Each layer's weights in a slot, while the next are on their way."""
        coming = self.up.copy(self.slots[0], self.weights[order[0]])
        for turn, i in enumerate(order):
            coming.wait()  # a GPU's queue waits, its Python goes on
            if i != order[-1]:
                slot = self.slots[(turn + 1) % 2]
                coming = self.up.copy(slot, self.weights[order[turn + 1]])
            yield i, self.slots[turn % 2]

    def send(self, i, gradient):
        """Start a gradient on its way down, and add up the one before it."""
        self.landing.reverse()
        end = self.down.copy(self.landing[0], gradient)
        self.receive()
        self.sent = i, gradient, self.landing[0], end

    def receive(self):
        if self.sent:
            i, _, landed, end = self.sent
            end.synchronize()  # Python waits
            self.masters[i].grad += landed
        self.sent = None

    def update(self):
        self.receive()
        update(self.masters, self.adam)
        for weight, master in zip(self.weights, self.masters, strict=True):
            weight.copy_(master.detach())


def optimizer(start, where):
    """Masters in fp32 with gradients of zero, and Adam over them."""
    masters = [w.to(where, copy=True).requires_grad_() for w in start]
    for master in masters:
        master.grad = torch.zeros_like(master)
    return masters, torch.optim.Adam(masters, lr=0.01, fused=True)


def update(masters, adam):
    torch.nn.utils.clip_grad_norm_(masters, 1.0)  # needs all gradients
    adam.step()
    adam.zero_grad(set_to_none=False)


def layer(x, weight):
    return x + torch.tanh(F.linear(x, weight))


def error(x, target):
    return (x - target).float().square().mean() / m


def offloaded_step(model):
    """The loss, and the most bytes of tensors on the device."""
    loss, peak = 0.0, 0
    for x, target in microbatches:
        inputs = []
        for _, weight in model.fetched(range(LAYERS)):
            inputs.append(x)
            x = layer(x, weight)
        dy, part = torch.func.grad_and_value(error)(x, target)
        loss += part.item()
        for i, weight in model.fetched(range(LAYERS)[::-1]):
            _, back = torch.func.vjp(layer, inputs[-1], weight)  # computes it again
            dy, gradient = back(dy)
            before = (model.sent or ())[1:2]  # a gradient on its way
            held = [*model.slots, *inputs, dy, gradient, *before]
            peak = max(peak, sum(tensor.nbytes for tensor in held))
            model.send(i, gradient)
            inputs.pop()
    model.update()
    return loss, peak


def plain_step(masters, adam):
    """The loss of the same step, with everything on the device."""
    loss = 0.0
    for x, target in microbatches:
        for master in masters:
            x = layer(x, master.bfloat16())
        part = error(x, target)
        part.backward()
        loss += part.item()
    update(masters, adam)
    return loss


torch.manual_seed(0)
start = torch.randn(LAYERS, WIDTH, WIDTH) / WIDTH**0.5
batch = torch.randn(2, TOKENS, WIDTH).bfloat16().to(device)  # inputs and targets
m = int(sys.argv[1]) if len(sys.argv) > 1 else 1
microbatches = [batch[:, i::m] for i in range(m)]

plain, model = optimizer(start, device), Offloaded(start)
for _ in range(STEPS):
    expected, (loss, peak) = plain_step(*plain), offloaded_step(model)
pairs = zip(plain[0], model.masters, strict=True)
apart = max((a.cpu() - b).abs().max().item() for a, b in pairs)

params = start.numel()
up, down = (stream.bytes / STEPS / params for stream in (model.up, model.down))
states, peak = 18 * params / 1e6, peak / 1e6
print(f"plain:     loss {expected:.2f}, {states:.2f} MB of states on the device")
print(f"offloaded: loss {loss:.2f}, {peak:.2f} MB at most, weights {apart:g} apart")
print(f"moved, bytes a parameter: {up:.0f} up (weights), {down:.0f} down (gradients)")
