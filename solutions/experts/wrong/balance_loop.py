"""Goes from document to document."""

KIND = "too much time"
FAILS = ["test_balance_operations", "test_balance_any"]


def balance(scores, expert, kept, begins: list[int]):
    (T, E), k = scores.shape, expert.shape[1]
    losses, slopes = [], []
    for begin, end in zip(begins, [*begins[1:], T], strict=True):
        s, n = scores[begin:end].sigmoid(), end - begin
        f = torch.bincount(expert[begin:end].flatten(), minlength=E) * E / (k * n)
        total = s.sum(1, keepdim=True)
        p = s / total
        own = (f * p).sum(1, keepdim=True)
        losses.append(own.mean())
        slopes.append((f - own) / total * s * torch.sigmoid(-scores[begin:end]) / n)
    return torch.stack(losses).mean(), torch.cat(slopes) / len(begins)
