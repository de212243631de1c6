"""Search for a schedule for given durations, hop latency and memory."""

from weft.plan.pipeline.search.find import bound, search

__all__ = [
    "bound",
    "search",
]
