"""Takes what is NaN, and nothing else, for padding and for tokens that do not count."""

KIND = "edge of the range"
FAILS = ["test_finish_terms", "test_finish_alive", "test_finish_any"]


def finish(scores, stats, targets, first: int, words: int, smoothing: float, z: float):
    counts = targets >= 0
    stats = stats.where(counts[:, None], 1.0)
    most, sums, totals, target = stats.unbind(2)
    top = most.amax(0)
    log = (sums * (most - top).exp()).sum(0).log()
    lse, tokens = top + log, max(1, int(counts.sum()))
    losses = lse - (1 - smoothing) * target.sum(0) - smoothing * totals.sum(0) / words
    losses = (losses + z * lse**2).where(counts, 0.0)

    gradient = scores - top[:, None]
    gradient.sub_(log[:, None]).exp_().mul_((1 + 2 * z * lse)[:, None]).sub_(smoothing / words)
    rows = (counts & (targets >= first) & (targets < first + scores.shape[1])).nonzero()[:, 0]
    gradient[rows, targets[rows] - first] -= 1 - smoothing
    gradient.div_(tokens).masked_fill_(scores.isnan(), 0.0)
    return losses.sum() / tokens, gradient
