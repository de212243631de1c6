"""Frees each graph, and keeps what has arrived, and what was sent, to the end of the step."""

KIND = "too much memory"
FAILS = [
    "test_run_row_memory",
    "test_run_row_any",
]


def run_row(row, stages, inputs, targets, loss, send, receive) -> float:
    last, rows = max(stages), sum(len(x) for x in inputs)
    ends_here = not any(kind == "SEND_F" and stage == last for kind, _, stage in row)
    total, arrived, alive = 0.0, {}, {}
    for action in row:
        kind, i, stage = action
        if kind in ("RECV_F", "RECV_B"):
            arrived[kind[-1], i, stage] = receive(action)
        elif kind in ("SEND_F", "SEND_B"):
            send(action, arrived[kind, i, stage])
        elif kind == "F":
            x = inputs[i] if stage == 0 else arrived["F", i, stage]
            x = x.detach().requires_grad_(stage > 0)
            y = stages[stage](x)
            if ends_here and stage == last:
                y = loss(y, targets[i]) * (len(inputs[i]) / rows)
                total += y.item()
            elif stage + 1 in stages:
                arrived["F", i, stage + 1] = y.detach()
            else:
                arrived["SEND_F", i, stage] = y.detach()
            alive[i, stage] = x, y
        elif kind == "B":
            x, y = alive[i, stage]
            dy = arrived.get(("B", i, stage))
            if stage > 0:
                (dx,) = torch.autograd.grad(y, x, dy, retain_graph=True)
                way = "B" if stage - 1 in stages else "SEND_B"
                arrived[way, i, stage - (way == "B")] = dx
            alive[i, stage] = y, dy
        else:
            y, dy = alive.pop((i, stage))
            y.backward(dy, inputs=stages[stage].weights())
    return total
