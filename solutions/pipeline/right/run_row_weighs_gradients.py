"""Weighs the gradient that backward begins with, not the loss; B by backward()."""


def run_row(row, stages, inputs, targets, loss, send, receive):
    count, losses = sum(map(len, inputs)), 0.0
    goes_on = {stage for kind, _, stage in row if kind == "SEND_F"} | {s - 1 for s in stages}
    forward, backward, graph = {}, {}, {}
    for action in row:
        kind, i, stage = action
        key = i, stage
        if kind == "RECV_F":
            forward[key] = receive(action)
        elif kind == "RECV_B":
            backward[key] = receive(action)
        elif kind == "SEND_F":
            send(action, forward.pop((i, stage + 1)))
        elif kind == "SEND_B":
            send(action, backward.pop((i, stage - 1)))
        elif kind == "F":
            x = inputs[i].clone() if stage == 0 else forward.pop(key)
            x.requires_grad_(True)
            y = stages[stage](x)
            if stage in goes_on:
                forward[i, stage + 1] = y.detach().clone()
            else:
                y = loss(y, targets[i])
                losses += y.item() * len(inputs[i])
                backward[key] = y.new_full((), len(inputs[i]) / count)
            graph[key] = x, y
            del x, y
        elif kind == "B" and stage > 0:
            x, y = graph[key]
            y.backward(backward[key], inputs=[x], retain_graph=True)
            backward[i, stage - 1] = x.grad.clone()
            del x, y
        elif kind == "W":
            x, y = graph.pop(key)
            torch.autograd.backward(y, backward.pop(key), inputs=stages[stage].weights())
            del x, y
    return losses / count
