"""Layers whose MLP is one of many experts: a router chooses for each token."""

from weft.nn.experts.decoder import SwitchBlock, decoder
from weft.nn.experts.layer import Routed, SwitchMLP, balance, in_turn, mlp, scored, weighed

__all__ = [
    "Routed",
    "SwitchBlock",
    "SwitchMLP",
    "balance",
    "decoder",
    "in_turn",
    "mlp",
    "scored",
    "weighed",
]
