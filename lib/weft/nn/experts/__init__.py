"""Layers whose MLP is one of many experts, and Switch, the model made of them."""

from weft.nn.experts.layer import Routed, SwitchMLP, balance, scored
from weft.nn.experts.load import load
from weft.nn.experts.model import SequenceMLP, Switch, SwitchConfig

__all__ = [
    "Routed",
    "SequenceMLP",
    "Switch",
    "SwitchConfig",
    "SwitchMLP",
    "balance",
    "load",
    "scored",
]
