"""Values as plain data, so that nothing an answer returns can run in the grader.

A pickle is a program: whoever loads it runs it. What an answer's process hands back is therefore
JSON with a name on everything that JSON does not know. Reading it makes exact builtins, Fractions,
Actions, Plans and tensors, and nothing else: no subclass with an __eq__ of its own gets through.
"""

import base64
import ctypes
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from weft.plan.schedule import Action, Plan

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32")
DTYPES += ("int64", "bool")
PLAIN = {"dict", "tuple", "set", "frozenset", "Action", "Plan", "Fraction", "complex"}


Refer = Callable[[Any], tuple[str, Any] | None]
Resolve = Callable[[str, Any], Any]


def dumps(value: Any, refer: Refer | None = None) -> bytes:
    """The value as bytes. TypeError names what is in it that is not data.

    `refer(value)` may give a kind and JSON in place of what JSON does not know: bridge.py.

    >>> loads(dumps({"rows": [("F", 0), ("BW", 0)], "bubble": Fraction(3, 11)}))
    {'rows': [('F', 0), ('BW', 0)], 'bubble': Fraction(3, 11)}
    """
    try:
        return json.dumps(encode(value, refer), separators=(",", ":")).encode()
    except (RecursionError, ValueError):  # as for an integer of 5000 digits
        raise TypeError("data nested too deep, or inside itself") from None


def loads(data: bytes, resolve: Resolve | None = None) -> Any:
    """The value that `dumps` wrote; ValueError for anything that it would not have written.

    `resolve(kind, json)` gives the value for what `refer` has put there.
    """
    try:
        return decode(json.loads(data), resolve)
    except (ValueError, TypeError, KeyError, RecursionError, ZeroDivisionError) as error:
        raise ValueError(f"not plain data: {error}") from None


def encode(value: Any, refer: Refer | None = None) -> Any:
    """The value as what JSON knows; see `dumps`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [encode(x, refer) for x in value]
    if type(value) is tuple:
        return {"is": "tuple", "of": [encode(x, refer) for x in value]}
    if refer is not None and (referred := refer(value)) is not None:
        kind, of = referred
        return {"is": kind, "of": of}
    # A subclass travels as what it is underneath.
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, list):
        return [encode(x, refer) for x in value]
    if isinstance(value, dict):
        pairs = [[encode(k, refer), encode(v, refer)] for k, v in value.items()]
        return {"is": "dict", "of": pairs}
    if isinstance(value, Action):
        return {"is": "Action", "of": [encode(x, refer) for x in value]}
    if isinstance(value, Plan):
        fields = (value.name, value.p, value.m, value.v, value.rows, value.ranks, value.lowered)
        return {"is": "Plan", "of": [encode(x, refer) for x in fields]}
    for sequence in (tuple, set, frozenset):
        if isinstance(value, sequence):
            return {"is": sequence.__name__, "of": [encode(x, refer) for x in value]}
    if isinstance(value, bytes | bytearray):
        return {"is": "bytes", "of": base64.b64encode(value).decode()}
    if isinstance(value, Fraction):
        return {"is": "Fraction", "of": [value.numerator, value.denominator]}
    if isinstance(value, complex):
        return {"is": "complex", "of": [value.real, value.imag]}
    return _encode_array(value)


def _encode_array(value: Any) -> Any:
    """Tensors and numpy's scalars, told apart by name so that neither library is imported."""
    home = type(value).__module__.split(".")[0]
    if home == "numpy" and getattr(value, "ndim", None) == 0:
        return encode(value.item())
    if home != "torch" or not hasattr(value, "untyped_storage"):
        raise TypeError(f"a {type(value).__name__}")
    if str(value.dtype).removeprefix("torch.") not in DTYPES:
        raise TypeError(f"a tensor of {value.dtype}")
    flat = value.detach().cpu().contiguous().reshape(-1)
    dtype = str(flat.dtype).removeprefix("torch.")
    raw = ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())
    return {"is": "tensor", "of": [dtype, list(value.shape), base64.b64encode(raw).decode()]}


def decode(value: Any, resolve: Resolve | None = None) -> Any:
    """The value that `encode` was given; see `loads`."""
    if isinstance(value, list):
        return [decode(x, resolve) for x in value]
    if not isinstance(value, dict):
        return value
    kind, of = value["is"], value["of"]
    if kind == "tensor":
        return _decode_tensor(*of)
    if kind == "bytes":
        return base64.b64decode(of)
    if kind not in PLAIN:
        if resolve is None:
            raise ValueError(f"unknown kind {kind!r}")
        return resolve(kind, of)
    inner = [decode(x, resolve) for x in of]
    if kind == "dict":
        return dict(inner)
    if kind in ("tuple", "set", "frozenset"):
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](inner)
    return {"Action": Action, "Plan": Plan, "Fraction": Fraction, "complex": complex}[kind](*inner)


def _decode_tensor(dtype: str, shape: list[int], raw: str) -> Any:
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}")
    import torch

    data = bytearray(base64.b64decode(raw))
    kind = getattr(torch, dtype)
    flat = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
    try:
        return flat.reshape(shape)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
