"""Layers whose MLP is one of many experts; a small decoder, and Switch, made of them."""

from weft.nn.experts.decoder import (
    ExpertsConfig,
    SwitchBlock,
    decoder,
)
from weft.nn.experts.layer import (
    Routed,
    SwitchMLP,
    balance,
    in_turn,
    mlp,
    scored,
    weighed,
)
from weft.nn.experts.load import (
    load,
)
from weft.nn.experts.model import (
    SequenceMLP,
    Switch,
    SwitchConfig,
)

__all__ = [
    "ExpertsConfig",
    "Routed",
    "SequenceMLP",
    "Switch",
    "SwitchBlock",
    "SwitchConfig",
    "SwitchMLP",
    "balance",
    "decoder",
    "in_turn",
    "load",
    "mlp",
    "scored",
    "weighed",
]
