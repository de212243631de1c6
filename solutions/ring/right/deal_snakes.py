"""Sorted blocks, dealt to and fro, scores counted token by token."""


def deal(documents, n, block):
    scores, token = {}, 0
    for length in documents:
        for place in range(length):
            scores[token // block] = scores.get(token // block, 0) + place + 1
            token += 1
    rows, forth = [[] for _ in range(n)], True
    order = sorted(scores, key=lambda i: -scores[i])
    for at in range(0, len(order), n):
        for rank, i in enumerate(order[at : at + n]):
            rows[rank if forth else n - 1 - rank].append(i)
        forth = not forth
    return rows
