"""Blocks as objects, each with its parent, so that a prefix is a walk along a tree."""


class _Block:
    def __init__(self, parent, depth):
        self.parent, self.depth, self.key = parent, depth, None
        self.children, self.holders, self.gone = {}, 0, 0


def prefix(operations, count, block):
    root, done = _Block(None, 0), []
    running, idle, empty = {}, set(), count

    def hold(b):
        b.holders += 1
        idle.discard(b)

    for now, (kind, name, *more) in enumerate(operations):
        if kind == "end":
            path, rest = running.pop(name)
            empty += bool(rest)
            for b in path:
                b.holders -= 1
                if not b.holders:
                    b.gone = now
                    idle.add(b)
            done.append(0)
            continue
        path, todo = [], list(more[0] if kind == "start" else more)
        rest = []
        if kind == "start":
            here = root
            while len(todo) > block and (here := here.children.get(tuple(todo[:block]))):
                path.append(here)
                todo = todo[block:]
            wanted = -(-len(todo) // block)
        else:
            path, rest = running[name]
            wanted = int(not rest)
        found = len(path) * block if kind == "start" else 0
        can = sorted(idle - set(path), key=lambda b: (b.gone, -b.depth))
        if wanted > empty + len(can):
            done.append(None)
            continue
        for b in can[: max(0, wanted - empty)]:
            del b.parent.children[b.key]
            idle.remove(b)
            empty += 1
        empty -= wanted
        if kind == "start":
            for b in path:
                hold(b)
        path, rest = list(path), rest + todo
        while len(rest) >= block:
            parent = path[-1] if path else root
            key, rest = tuple(rest[:block]), rest[block:]
            if key in parent.children:
                empty += 1
            else:
                parent.children[key] = _Block(parent, parent.depth + 1)
                parent.children[key].key = key
            path.append(parent.children[key])
            hold(path[-1])
        running[name] = path, rest
        done.append(found)
    return done
