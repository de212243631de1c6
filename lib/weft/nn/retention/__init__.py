"""RetNet: its layer in three forms, the model that trains and decodes, and torchscale's weights."""

from weft.nn.retention.layer import FORMS, MultiScaleRetention, rotate
from weft.nn.retention.model import RetNet, RetNetConfig, load

__all__ = ["FORMS", "MultiScaleRetention", "RetNet", "RetNetConfig", "load", "rotate"]
