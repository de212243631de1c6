"""What goes into the compiler and what comes out: a pass of a face, before and after."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

from weft.kernels.code.loops import Instruction, Loop, instructions, loops

PTX_INSTRUCTION = re.compile(r"^\s*(?:@!?%?\w+\s+)?([a-z][a-z0-9_.:]+)\b", re.M)
WORDS = {  # what a reader looks for -> the machine's names for it, the newest first
    "tensor cores": ("UTCHMMA", "UTCQMMA", "HGMMA", "QGMMA", "HMMA", "QMMA"),
    "bulk copies (TMA)": ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP"),
    "asynchronous copies": ("LDGSTS",),
    "global memory": ("LDG", "STG", "RED", "ATOMG"),
    "shared memory": ("LDS", "LDSM", "STS", "STSM"),
    "tensor memory": ("LDTM", "STTM"),
    "special functions": ("MUFU",),
    "barriers": ("BAR", "SYNCS"),
    "register reallocation": ("USETMAXREG",),
    "local memory (spills)": ("LDL", "STL"),
}


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


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a pass.

    `registers` is per thread, at the kernel's entry; `spills` the bytes per thread that did not
    fit into registers and live in local memory, which is off the chip; `shared_bytes` per block.
    `warps` go through the code together; where warps have roles, so many to each.
    """

    name: str
    ptx: str
    sass: str
    registers: int
    spills: int
    shared_bytes: int
    warps: int = 4

    def count(self, mnemonic: str) -> int:
        """How many instructions in the code, not in its run, begin with those parts.

        Upper case counts machine code ("HGMMA", "MUFU.EX2"), lower case PTX ("wgmma.mma_async").

        >>> sass = "/*0000*/ MUFU.EX2 R1, R2 ;\\n/*0010*/ @!P0 MUFU.RCP R1, R1 ;"
        >>> one = Compiled("toy", "", sass, 8, 0, 0)
        >>> one.count("MUFU"), one.count("MUFU.EX2"), one.count("MUF")
        (2, 1, 0)
        """
        found = self._machine if mnemonic.isupper() else self._portable
        return sum(n for name, n in found.items() if (name + ".").startswith(mnemonic + "."))

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The machine code, line by line."""
        return instructions(self.sass)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Its loops; `weft.kernels.code.loops.hot` says in which of them the time is spent."""
        return loops(self.sass)

    @cached_property
    def _machine(self) -> Counter[str]:
        return Counter(one.name for one in self.instructions)

    @cached_property
    def _portable(self) -> Counter[str]:
        return Counter(PTX_INSTRUCTION.findall(self.ptx))

    def _rows(self) -> list[tuple[str, str]]:
        spills = f"{self.spills} bytes per thread" if self.spills else "none"
        rows = [
            ("registers", str(self.registers)),
            ("spills", spills),
            ("shared memory", f"{self.shared_bytes:,} bytes"),
            ("instructions", f"{sum(self._machine.values()):,}"),
        ]
        for what, mnemonics in WORDS.items():
            counts = [(mnemonic, self.count(mnemonic)) for mnemonic in mnemonics]
            text = ", ".join(f"{n} {mnemonic}" for mnemonic, n in counts if n)
            if text:
                rows.append((what, text))
        return rows

    def __str__(self) -> str:
        lines = [f"  {what:<22} {text}" for what, text in self._rows()]
        return "\n".join([self.name, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(what)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for what, text in self._rows()
        )
        return f"<table><caption>{escape(self.name)}</caption><tbody>{rows}</tbody></table>"
