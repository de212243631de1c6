"""What a training step keeps on each device: states, activations, caches."""

from weft.plan.memory.activation import ATTENTIONS, activations
from weft.plan.memory.config import of_deepspeed, places
from weft.plan.memory.deepspeed import deepspeed_zero2, deepspeed_zero3
from weft.plan.memory.partition import BY_INPUTS, WHOLE, divided, kv_width, parameters
from weft.plan.memory.passing import LEFT_OUT, RESERVE, Passing, passing
from weft.plan.memory.states import STAGES, States, kv_cache, model_states
from weft.plan.memory.zero_infinity import MODELS, bandwidth_for, efficiency, infinity

__all__ = [
    "ATTENTIONS",
    "BY_INPUTS",
    "LEFT_OUT",
    "MODELS",
    "RESERVE",
    "STAGES",
    "WHOLE",
    "Passing",
    "States",
    "activations",
    "bandwidth_for",
    "deepspeed_zero2",
    "deepspeed_zero3",
    "divided",
    "efficiency",
    "infinity",
    "kv_cache",
    "kv_width",
    "model_states",
    "of_deepspeed",
    "parameters",
    "passing",
    "places",
]
