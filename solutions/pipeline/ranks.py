"""The executor exercise on real ranks: what surrounds run_row there, and the same step alone."""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from weft.grade.ranks import Misfit
from weft.plan.schedule import Action, peer


class _Count(torch.autograd.Function):
    """The identity, whose node in the graph lives as long as the microbatch is kept alive."""

    @staticmethod
    def forward(ctx, x, alive):
        ctx.held = alive.one_more()
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class _Kept(torch.autograd.Function):
    """A copy in memory of ours, so that it is known how long anybody keeps it."""

    @staticmethod
    def forward(ctx, x, tensors):
        return tensors.empty(x.shape).copy_(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Alive:
    """How many there are of something, and how many there were at the most."""

    def __init__(self):
        self.now = self.peak = 0

    def one_more(self):
        self.now += 1
        self.peak = max(self.peak, self.now)
        return _Held(self)

    def empty(self, shape):
        """One more tensor, which counts until nobody has its memory, under whatever name."""
        memory = _Memory(8 * shape.numel())
        memory.held = self.one_more()
        return torch.frombuffer(memory, dtype=torch.float64).view(shape)


class _Memory(bytearray):
    held: object


class _Held:
    def __init__(self, alive):
        self.alive = alive

    def __del__(self):
        self.alive.now -= 1


class _Mark(torch.autograd.Function):
    """The identity, which writes down that a gradient came through."""

    @staticmethod
    def forward(ctx, x, log, event):
        ctx.log, ctx.event = log, event
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.log.append(ctx.event)
        return gradient, None, None


class Stage(torch.nn.Module):
    """A linear layer and a tanh. Its live graphs are counted, and what is computed written down."""

    OFFERS = ("__call__()", "forward()", "weights()", "zero_grad()", "train()", "eval()")

    def __init__(self, width, alive, tensors, log, number):
        super().__init__()
        self.linear = torch.nn.Linear(width, width, dtype=torch.float64)
        self.alive, self.tensors, self.log, self.number = alive, tensors, log, number
        self.order = iter(())  # the microbatches, as the row has them

    def weights(self):
        """The parameters, in a list."""
        return list(self.parameters())

    def forward(self, x):
        i = next(self.order, None)
        self.log.append(("F", i, self.number))
        x = _Mark.apply(x, self.log, ("B", i, self.number))
        weight = _Mark.apply(self.linear.weight, self.log, ("W", i, self.number))
        y = torch.nn.functional.linear(x, weight, self.linear.bias)
        return _Kept.apply(torch.tanh(_Count.apply(y, self.alive)), self.tensors)


def build(stages, lengths, width, seed):
    """All stages, inputs and targets, the same on every rank; and what they count and log."""
    torch.manual_seed(seed)
    counts, log = (Alive(), Alive()), []  # of graphs, and of tensors
    modules = [Stage(width, *counts, log, number) for number in range(stages)]
    inputs, targets = (
        [torch.randn(n, width, dtype=torch.float64) for n in lengths] for _ in range(2)
    )
    return modules, inputs, targets, counts, log


def gradients(modules):
    """Every parameter's gradient, flat, stage by stage; None where there is none."""
    return [
        [None if x.grad is None else x.grad.flatten().tolist() for x in module.parameters()]
        for module in modules
    ]


def alone(plan, lengths, width, seed):
    """The step's loss and gradients in one process, all rows at once, as floats."""
    modules, inputs, targets, *_ = build(plan.stages, lengths, width, seed)
    x = torch.cat(inputs)
    for module in modules:
        x = module(x)
    loss = mse_loss(x, torch.cat(targets))
    loss.backward()
    return {"loss": loss.item(), "gradients": gradients(modules)}


class Links:
    """This rank's sends and receives: the messages of its row, each with its own neighbour."""

    def __init__(self, world, answers, plan, shapes, tensors, log):
        self.world, self.answers, self.plan, self.shapes = world, answers, plan, shapes
        self.group, self.pending, self.sent = world.group(), [], 0
        self.tensors, self.log = tensors, log
        self.row = [
            action for action in plan.rows[world.rank] if action.kind[:4] in ("SEND", "RECV")
        ]
        self.made = []  # what has been sent and received, in order

    def send(self, action, tensor):
        """Send what a SEND_F or SEND_B of the row carries."""
        action = self._mine("send", action, "SEND")
        shape = self.shapes[action.microbatch]
        if not isinstance(tensor, torch.Tensor) or tensor.shape != shape:
            got = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else tensor
            raise Misfit(f"send({action}, …) takes a tensor of {shape}, was given {got!r}"[:500])
        if tensor.dtype != torch.float64:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise Misfit(f"send({action}, …) takes float64, as the inputs are, was given {kind}")
        tensor = tensor.detach().contiguous().clone()
        self.sent += tensor.nbytes
        self.made.append(action)
        self.log.append(tuple(action))
        if self.made.count(action) == 1:  # nobody waits for another one
            there, tag = peer(self.plan, action), self._tag(action)
            work = dist.isend(tensor, group=self.group, group_dst=there, tag=tag)
            self.pending.append((work, tensor))

    def receive(self, action):
        """What a RECV_F or RECV_B of the row brings."""
        action = self._mine("receive", action, "RECV")
        if action in self.made:
            raise Misfit(f"receive({action}) was called before: each message comes once")
        self.made.append(action)
        self.log.append(tuple(action))
        tensor = self.tensors.empty(torch.Size(self.shapes[action.microbatch]))
        there, tag = peer(self.plan, action), self._tag(action)
        dist.recv(tensor, group=self.group, group_src=there, tag=tag)
        return tensor

    def finish(self):
        """Wait for all ranks; Misfit where the row has a message that was never made."""
        for action in self.row:
            if action not in self.made:
                raise Misfit(f"run_row has returned, and {action} of its row was not run", "")
        self.answers.meet()

    def _mine(self, name, action, kind):
        shown = f"{action!r}" if not isinstance(action, Action) else str(action)
        action = (
            Action(*action) if isinstance(action, list | tuple) and len(action) == 3 else action
        )
        if action not in self.row or not action.kind.startswith(kind):
            raise Misfit(f"{name} takes a {kind} of this rank's row, was given {shown}")
        missed = [str(one) for one in self.row[: self.row.index(action)] if one not in self.made]
        what = f"without the {missed[0]} before it" if missed else ""
        self.answers.diary.note(doing=f"{name}({action})", what=what)
        return action

    def _tag(self, action):
        way, stage, microbatch = action.message
        return (stage * self.plan.m + microbatch) * 2 + (way == "B")


def one_rank(world, answers, told, plan, lengths, width, seed):
    """run_row on this rank: its loss, its gradients, what it did and sent, what it kept alive."""
    modules, inputs, targets, (alive, tensors), log = build(plan.stages, lengths, width, seed)
    links = Links(world, answers, plan, [(n, width) for n in lengths], tensors, log)
    mine = {stage: modules[stage] for stage in plan.stages_of(world.rank)}
    answers.at(told, world)
    row = list(plan.rows[world.rank])
    for stage, module in mine.items():
        module.order = iter([i for kind, i, s in row if (kind, s) == ("F", stage)])

    def send(action, tensor):
        return links.send(action, tensor)

    def receive(action):
        return links.receive(action)

    loss = answers.run_row(row, mine, inputs, targets, mse_loss, send, receive)
    if not isinstance(loss, float):
        raise Misfit(f"run_row returns its part of the loss as a float, returned {loss!r}"[:500])
    links.finish()
    return {
        "loss": loss,
        "gradients": dict(zip(mine, gradients(mine.values()), strict=True)),
        "messages": [str(action) for action in links.made],
        "sent": links.sent,
        "log": log,
        "alive": alive.peak,
        "tensors": tensors.peak,
    }
