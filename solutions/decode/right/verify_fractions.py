"""With fractions, and a recursion down the tree."""

from fractions import Fraction


def verify(parents, tokens, q, p, uniforms):
    numbers = list(map(Fraction, uniforms))

    def share(row):
        whole = sum(row.values())
        return {x: y / whole for x, y in row.items()} if whole else row

    def down(node):
        model, guess = ({x: Fraction(y) for x, y in enumerate(row)} for row in (p[node], q[node]))
        for child in [i for i, one in enumerate(parents) if one == node and i != node]:
            x = tokens[child]
            model, guess = share(model), share(guess)
            if numbers.pop(0) < model[x] / guess[x]:
                return [x, *down(child)]
            model = {y: max(0, model[y] - guess.get(y, 0)) for y in model}
            del guess[x]
        model, u = share(model), numbers.pop(0)
        for x, chance in model.items():
            u -= chance
            if u < 0:
                return [x]
        return [max(model, key=model.get)]

    return down(0)
