"""A method for each kind of action; gradients are added up by hand."""


class _Executor:
    def __init__(self, row, stages, inputs, targets, loss, send, receive):
        self.stages, self.inputs, self.targets, self.loss = stages, inputs, targets, loss
        self.send, self.receive, self.total = send, receive, 0.0
        sent = {stage for kind, _, stage in row if kind == "SEND_F"}
        self.final = max(stages) if max(stages) not in sent else None
        self.made, self.kept = {}, {}  # what a stage needs next; what backward needs

    def RECV_F(self, action):
        self.made["F", action[1], action[2]] = self.receive(action)

    def RECV_B(self, action):
        self.made["B", action[1], action[2]] = self.receive(action)

    def SEND_F(self, action):
        self.send(action, self.made.pop(("F", action[1], action[2] + 1)))

    def SEND_B(self, action):
        self.send(action, self.made.pop(("B", action[1], action[2] - 1)))

    def F(self, action):
        _, i, stage = action
        x = self.made.pop(("F", i, stage)).detach().requires_grad_() if stage else self.inputs[i]
        y = self.stages[stage].forward(x)
        if stage == self.final:
            share = self.inputs[i].shape[0] / sum(x.shape[0] for x in self.inputs)
            y = self.loss(y, self.targets[i]) * share
            self.total += float(y)
            self.made["B", i, stage] = None
        else:
            self.made["F", i, stage + 1] = y.detach()
        self.kept[i, stage] = x, y

    def B(self, action):
        _, i, stage = action
        x, y = self.kept.pop((i, stage))
        dy = self.made.pop(("B", i, stage))
        if stage:
            (self.made["B", i, stage - 1],) = torch.autograd.grad([y], [x], [dy], retain_graph=True)
        self.kept[i, stage] = y, dy

    def W(self, action):
        _, i, stage = action
        y, dy = self.kept.pop((i, stage))
        weights = self.stages[stage].weights()
        for weight, grad in zip(weights, torch.autograd.grad([y], weights, [dy]), strict=True):
            weight.grad = grad if weight.grad is None else weight.grad + grad


def run_row(row, stages, inputs, targets, loss, send, receive):
    executor = _Executor(row, stages, inputs, targets, loss, send, receive)
    for action in row:
        getattr(executor, action[0])(action)
    return executor.total
