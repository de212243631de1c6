"""A KV cache: what it costs, who holds which block, and how many sequences it serves."""

from weft.plan.decode.accepts import DecodeSizes, check, look
from weft.plan.decode.batching import POLICIES, BatchedStep, Batching, StepPart, batched
from weft.plan.decode.blocks import Blocks, CacheFull, Event
from weft.plan.decode.cache import (
    bytes_per_token,
    intensity,
    latent_intensity,
    mean_waste,
    sequences,
    splits,
    step,
    waste,
)
from weft.plan.decode.scheduler import Scheduler, ServingTurn
from weft.plan.decode.server import SERVED, Server, expected_tokens, expert_bytes, speculation
from weft.plan.decode.serving import MEMORIES, Lease, Life, Request, Service, requests, serve
from weft.plan.decode.sharing import beam_search, parallel

__all__ = [
    "MEMORIES",
    "POLICIES",
    "SERVED",
    "BatchedStep",
    "Batching",
    "Blocks",
    "CacheFull",
    "DecodeSizes",
    "Event",
    "Lease",
    "Life",
    "Request",
    "Scheduler",
    "Server",
    "Service",
    "ServingTurn",
    "StepPart",
    "batched",
    "beam_search",
    "bytes_per_token",
    "check",
    "expected_tokens",
    "expert_bytes",
    "intensity",
    "latent_intensity",
    "look",
    "mean_waste",
    "parallel",
    "requests",
    "sequences",
    "serve",
    "speculation",
    "splits",
    "step",
    "waste",
]
