"""A sequence over ranks: who holds, computes and sends what, how long it takes and what fits."""

from weft.plan.ring.alive import alive
from weft.plan.ring.balance import efficiency, even_efficiency, longest_path, work
from weft.plan.ring.budget import Budget, budget
from weft.plan.ring.decoding import sent_in_decode
from weft.plan.ring.hops import METHODS, sent, sent_in_grid
from weft.plan.ring.layouts import LAYOUTS, held, lengths, positions
from weft.plan.ring.memory import MODELS, PEAKS, TABLE_2, TABLE_3, longest
from weft.plan.ring.nodes import WAYS, computed_seconds, pass_seconds
from weft.plan.ring.price import best, least_block, seconds

__all__ = [
    "LAYOUTS",
    "METHODS",
    "MODELS",
    "PEAKS",
    "TABLE_2",
    "TABLE_3",
    "WAYS",
    "Budget",
    "alive",
    "best",
    "budget",
    "computed_seconds",
    "efficiency",
    "even_efficiency",
    "held",
    "least_block",
    "lengths",
    "longest",
    "longest_path",
    "pass_seconds",
    "positions",
    "seconds",
    "sent",
    "sent_in_decode",
    "sent_in_grid",
    "work",
]
