"""What a compiler is told of a kernel: one pass of a face, as a value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pass:
    """One kernel of a face, and all that the compiler has to know to build it.

    `signature` gives the type of each argument that is not a constexpr, as Triton spells it:
    "*bf16", "i32", "fp32"; with ":16" behind it, a multiple of 16 (an aligned pointer). Of a
    NamedTuple it is a NamedTuple of types, or of constants where a field is one. `options` are
    Triton's: num_warps, num_stages, maxnreg and so on. `record.recording` makes passes of launches.
    """

    name: str
    function: Callable
    signature: Mapping[str, str | tuple]
    constexprs: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
