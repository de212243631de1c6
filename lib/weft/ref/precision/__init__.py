"""Mixed precision: loss scaling, Adam on master weights, and rounding that is right on average."""

from weft.ref.precision.loss_scaler import LossScaler
from weft.ref.precision.master_adam import MasterAdam, adam
from weft.ref.precision.rounding import Delayed, saturated, stochastic

__all__ = [
    "Delayed",
    "LossScaler",
    "MasterAdam",
    "adam",
    "saturated",
    "stochastic",
]
