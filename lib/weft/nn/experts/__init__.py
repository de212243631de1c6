"""Layers whose MLP is one of many experts: a router chooses for each token."""

from weft.nn.experts.layer import Routed, SwitchMLP, balance

__all__ = ["Routed", "SwitchMLP", "balance"]
