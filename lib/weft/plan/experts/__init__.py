"""Mixture of experts: capacity and drops, balance, what is sent, kept, touched and wasted."""

from weft.plan.experts.balance import balance_loss, balance_slopes
from weft.plan.experts.capacity import (
    capacity,
    drop_share,
    dropped,
    loads,
    near_drop_share,
)
from weft.plan.experts.check import check_grouped, check_matrices, check_mlp
from weft.plan.experts.memory import expert_states
from weft.plan.experts.published import SWITCHES, SwitchModel
from weft.plan.experts.rows import least_tokens, touched, wasted_rows
from weft.plan.experts.traffic import distinct_ranks, flops_per_byte, sent, sent_by, sent_merged
from weft.plan.experts.versions import VERSIONS, MLPCost, mlp_cost

__all__ = [
    "SWITCHES",
    "VERSIONS",
    "MLPCost",
    "SwitchModel",
    "balance_loss",
    "balance_slopes",
    "capacity",
    "check_grouped",
    "check_matrices",
    "check_mlp",
    "distinct_ranks",
    "drop_share",
    "dropped",
    "expert_states",
    "flops_per_byte",
    "least_tokens",
    "loads",
    "mlp_cost",
    "near_drop_share",
    "sent",
    "sent_by",
    "sent_merged",
    "touched",
    "wasted_rows",
]
