"""Keeps both rows as they are and carries their sums instead."""


def verify(parents, tokens, q, p, uniforms):
    used, node, words = 0, 0, []
    while True:
        rest, rows = list(p[node]), list(q[node])
        children = [i for i, parent in enumerate(parents) if parent == node]
        for child in children:
            x, all_rest, all_rows = tokens[child], sum(rest), sum(rows)
            stands = uniforms[used] < rest[x] / all_rest * all_rows / rows[x]
            used += 1
            if stands:
                words.append(x)
                node = child
                break
            rest = [max(a / all_rest - b / all_rows, 0) for a, b in zip(rest, rows, strict=True)]
            rows[x] = 0
        else:
            goal, total = uniforms[used] * sum(rest), 0
            for x, chance in enumerate(rest):
                total += chance
                if total > goal:
                    return [*words, x]
            return [*words, rest.index(max(rest))]
