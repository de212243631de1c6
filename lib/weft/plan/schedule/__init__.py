"""A pipeline schedule as a value: its actions, the messages between them, and what makes it valid.

One value is drawn, simulated, priced and run. weft.plan.pipeline makes such values.
"""

from weft.plan.schedule.actions import COMPUTE, RECEIVES, SENDS, Action, Plan
from weft.plan.schedule.messages import check_messages, messages, naive, peer
from weft.plan.schedule.validate import validate

__all__ = [
    "COMPUTE",
    "RECEIVES",
    "SENDS",
    "Action",
    "Plan",
    "check_messages",
    "messages",
    "naive",
    "peer",
    "validate",
]
