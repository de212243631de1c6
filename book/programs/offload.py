"""Train a model that its device cannot hold: weights come layer by layer, Adam runs on the CPU.

Run it with python offload.py [MICROBATCHES].
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional as F

WIDTH, LAYERS, TOKENS, STEPS = 256, 12, 64, 5
SIZE = WIDTH * WIDTH + WIDTH  # parameters of a layer
BUDGET = 1_000_000  # bytes that the device may hold

gpu = torch.cuda.is_available()
device = torch.device("cuda" if gpu else "cpu")


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


class Master:
    """The optimizer's side: fp32 weights, gradients and moments of each layer."""

    def __init__(self, start, where):
        self.flats = [flat.to(where, copy=True) for flat in start]
        for flat in self.flats:
            flat.grad = torch.zeros_like(flat)
        self.adam = torch.optim.Adam(self.flats, lr=0.01, fused=True)

    def update(self):
        """One step. The norm needs all gradients, so it waits for the last."""
        torch.nn.utils.clip_grad_norm_(self.flats, 1.0)
        self.adam.step()
        self.adam.zero_grad(set_to_none=False)


class Offloaded:
    """All states in host memory, and room for two layers on the device."""

    def __init__(self, start):
        self.master = Master(start, "cpu")
        half = {"dtype": torch.bfloat16, "pin_memory": gpu}
        self.weights = [torch.empty(SIZE, **half).copy_(flat) for flat in start]
        self.landing = [torch.empty(SIZE, **half) for _ in range(2)]
        self.slots = [flat.to(device, copy=True) for flat in self.weights[:2]]
        self.up, self.down, self.pending = CopyStream(), CopyStream(), None

    def fetched(self, order):
        """Each layer's weights in a slot, while the next are on their way."""
        coming = self.up.copy(self.slots[0], self.weights[order[0]])
        for turn, i in enumerate(order):
            coming.wait()  # the device does; a CPU with a GPU goes on
            if i != order[-1]:
                slot = self.slots[(turn + 1) % 2]  # free: its layer is computed
                coming = self.up.copy(slot, self.weights[order[turn + 1]])
            yield i, self.slots[turn % 2]

    def send(self, i, gradient):
        """Start a gradient on its way down, and add up the one before it."""
        self.landing.reverse()
        end = self.down.copy(self.landing[0], gradient)
        self.receive()
        self.pending = i, gradient, self.landing[0], end

    def receive(self):
        if self.pending:
            i, _, landed, end = self.pending
            end.synchronize()  # the CPU waits
            self.master.flats[i].grad += landed
        self.pending = None

    def update(self):
        self.receive()
        self.master.update()
        for weight, flat in zip(self.weights, self.master.flats, strict=True):
            weight.copy_(flat)


def layer(x, flat):
    """A residual layer whose matrix and bias are views of `flat`."""
    matrix, bias = flat[:-WIDTH].view(WIDTH, WIDTH), flat[-WIDTH:]
    return x + torch.tanh(F.linear(x, matrix, bias))


def error(x, target):
    return (x - target).float().square().mean() / m


def backward(function, *given, dy=None):
    """Gradients of what a function is given; the function is computed once more."""
    leaves = [tensor.detach().requires_grad_() for tensor in given]
    return torch.autograd.grad(function(*leaves), leaves, dy)


def offloaded_step(model):
    """The loss, and the most bytes of tensors on the device."""
    loss, peak = 0.0, 0
    for x, target in microbatches:
        inputs = []
        for _, flat in model.fetched(range(LAYERS)):
            inputs.append(x)
            x = layer(x, flat)
        loss += error(x, target).item()
        dy, _ = backward(error, x, target)
        for i, flat in model.fetched(range(LAYERS)[::-1]):
            dy, gradient = backward(layer, inputs[-1], flat, dy=dy)
            held = [*model.slots, *inputs, dy, gradient]
            held += (model.pending or ())[1:2]  # the gradient before
            peak = max(peak, sum(tensor.nbytes for tensor in held))
            model.send(i, gradient)
            inputs.pop()
    model.update()
    return loss, peak


def plain_step(master):
    """The loss of the same step by autograd, with everything on the device."""
    loss = 0.0
    flats = [flat.bfloat16().requires_grad_() for flat in master.flats]
    for x, target in microbatches:
        for flat in flats:
            x = layer(x, flat)
        part = error(x, target)
        loss += part.item()
        gradients = torch.autograd.grad(part, flats)
        for flat, gradient in zip(master.flats, gradients, strict=True):
            flat.grad += gradient
    master.update()
    return loss


torch.manual_seed(0)
start = torch.randn(LAYERS, SIZE) / WIDTH**0.5
batch = torch.randn(2, TOKENS, WIDTH).bfloat16().to(device)  # inputs and targets
m = int(sys.argv[1]) if len(sys.argv) > 1 else 1
microbatches = [batch[:, i::m] for i in range(m)]

plain, model = Master(start, device), Offloaded(start)
for _ in range(STEPS):
    model.up.bytes = model.down.bytes = 0
    expected, (loss, peak) = plain_step(plain), offloaded_step(model)
pairs = zip(plain.flats, model.master.flats, strict=True)
apart = max((a.cpu() - b).abs().max().item() for a, b in pairs)
assert peak <= BUDGET and (apart == 0 or gpu)

params = LAYERS * SIZE
up, down = model.up.bytes / params, model.down.bytes / params
states, peak = 18 * params / 1e6, peak / 1e6
print(f"plain:     loss {expected:.3f}, {states:.2f} MB of states on the device")
print(f"offloaded: loss {loss:.3f}, {peak:.2f} MB at most, weights {apart:g} apart")
print(f"moved, bytes a parameter: {up:.0f} up (weights), {down:.0f} down (gradients)")
