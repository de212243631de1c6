"""Sorts what the producer does by the tile that it stands before."""


def ring(pieces, stages, consumers):
    ends = [sum(pieces[: i + 1]) for i in range(len(pieces))]
    todo = [
        ((tile, 1), "empty", "load", tile % stages, tile // stages, tile)
        for tile in range(sum(pieces))
    ]
    for i, (end, n) in enumerate(zip(ends, pieces)):
        todo.append(((end - n + stages, 0), "stored", "query", i % consumers, i // consumers, i))
    todo.sort(key=lambda one: one[0])  # pieces that begin together stay in order
    producer = []
    for _, wait, act, place, turn, number in todo:
        producer += [(wait, place, (turn + 1) & 1), (act, place, number)]

    def consumer(c):
        for i in range(c, len(pieces), consumers):
            yield "asked", c, i // consumers & 1
            for tile in range(ends[i] - pieces[i], ends[i]):
                yield "full", tile % stages, tile // stages & 1
                yield "read", tile % stages, tile
                yield "free", tile % stages, tile
            yield "store", c, i

    return [producer, *(list(consumer(c)) for c in range(consumers))]
