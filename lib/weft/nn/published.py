"""Models as they are published: a folder with config.json and model.safetensors, no pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn


def read(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a folder says of a model: its config, and its weights by name.

    FileNotFoundError names the file that is missing, ValueError one that is not what its name
    says, ImportError the library without which weights cannot be read.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError("reading model.safetensors needs: pip install safetensors") from error
    config, weights = (Path(folder) / name for name in ("config.json", "model.safetensors"))
    for file in (config, weights):
        if not file.is_file():
            raise FileNotFoundError(f"{folder} has no {file.name}")
    try:
        said = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{config} is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"{config} has a {type(said).__name__}, must have an object")
    try:
        return said, load_file(weights)
    except SafetensorError as error:
        raise ValueError(f"{weights} is not a safetensors file: {error}") from error


def fill(model: nn.Module, weights: Mapping[str, Tensor], where: str | Path) -> None:
    """Copy weights into a model that names them alike; ValueError names the first that differs."""
    own = model.state_dict()
    for name in [*own, *weights]:
        if name not in weights:
            raise ValueError(f"{where} has no weight {name}")
        if name not in own:
            raise ValueError(f"{where} has a weight {name}, which the model has not")
        if own[name].shape != weights[name].shape:
            found, wanted = list(weights[name].shape), list(own[name].shape)
            raise ValueError(f"{name} is {found} in {where}, must be {wanted} by its config")
    model.load_state_dict(dict(weights))
