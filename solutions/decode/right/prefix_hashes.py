"""Hashes of whole blocks, chained, and a list of blocks from the one let go first."""

import hashlib


def prefix(operations, count, block):
    def hashes(tokens):
        found, before = [], b""
        for end in range(block, len(tokens) + 1, block):
            words = repr(tokens[end - block : end]).encode()
            before = hashlib.sha256(before + words).digest()
            found.append(before)
        return found

    texts, holders, queue, answers = {}, {}, [], []
    for kind, name, *more in operations:
        if kind == "end":
            for one in reversed(hashes(texts.pop(name))):
                holders[one].remove(name)
                if not holders[one]:
                    queue.append(one)
            answers.append(0)
            continue
        old = texts.get(name, []) if kind == "next" else []
        text = old + (more[0] if kind == "start" else more)
        hits = []
        for one in hashes(text[:-1]) if kind == "start" else []:
            if one not in holders:
                break
            hits.append(one)
        new = -(-len(text) // block) - (len(hits) or -(-len(old) // block))
        unfull = len([t for t in texts.values() if len(t) % block])
        free = count - len(holders) - unfull
        usable = [one for one in queue if one not in hits]
        if new > free + len(usable):
            answers.append(None)
            continue
        gone = usable[: max(0, new - free)]
        queue = [one for one in queue if one not in gone and one not in hits]
        for one in gone:
            del holders[one]
        texts[name] = text
        for one in hashes(text):
            holders.setdefault(one, set()).add(name)
            if one in queue:
                queue.remove(one)
        answers.append(block * len(hits))
    return answers
