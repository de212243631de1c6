"""Why one layout is slower than another, in a sentence."""

from weft.plan.arguments import instance
from weft.plan.composing.estimate import Estimate
from weft.plan.units import percent, quantity

SAID = 3  # differences that are named at most
SMALL = 0.1  # of the whole difference: what is less is not named


def why(faster: Estimate, slower: Estimate) -> str:
    """What the slower of two steps of one model spends more on, and what it saves."""
    instance(Estimate, faster=faster, slower=slower)
    more = {name: slower.parts[name] - faster.parts[name] for name in slower.parts}
    gap = slower.seconds - faster.seconds
    ranked = sorted(more.items(), key=lambda pair: -abs(pair[1]))
    enough = SMALL * max(abs(value) for value in more.values())
    named = [(name, value) for name, value in ranked[:SAID] if value and abs(value) >= enough]
    said = [f"{quantity(abs(v), 's')} {'more' if v > 0 else 'less'} of {name}" for name, v in named]
    start = f"{percent(gap / faster.seconds)} slower" if gap > 0 else "as fast"
    return f"{start}: {', '.join(said)}" if said else start
