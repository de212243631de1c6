"""Token by token."""


def finish(scores, stats, targets, first, words, smoothing, z):
    T, n = scores.shape
    real = max(0, min(n, words - first))
    gradient = torch.zeros(T, n)
    loss, many = torch.zeros(()), 0
    for t, target in enumerate(targets.tolist()):
        if target < 0:
            continue
        many += 1
        most, sums, totals, own = stats[:, t].T
        logs = most + sums.log()  # -inf where there is no word
        lse = torch.logsumexp(logs, 0)
        loss = loss + lse - (1 - smoothing) * own.sum() - smoothing * totals.sum() / words
        loss = loss + z * lse.square()
        row = torch.exp(scores[t, :real] - lse) * (1 + 2 * z * lse) - smoothing / words
        if first <= target < first + n:
            row[target - first] -= 1 - smoothing
        gradient[t, :real] = row
    return loss / max(1, many), gradient / max(1, many)
