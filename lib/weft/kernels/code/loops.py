"""The loops of machine code: which instructions a warp meets again and again, and how many.

A kernel's time is spent in its loops, and a listing does not say where they are: waits that fail
are written behind everything else and jump back into the middle, and the warps of a specialised
kernel all start at the same place. So this reads the listing as compilers do: pieces of code
without a branch, which piece can follow which, and which a warp must have passed to get to another.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

LINE = re.compile(
    r"^(?P<label>[.$\w]+):\s*$"
    r"|^\s*/\*[0-9a-f]+\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?(?P<name>[A-Z][A-Za-z0-9_.]*)\s*(?P<rest>.*);",
    re.M,
)
TARGET = re.compile(r"`\(([^)]+)\)")
TARGETS = re.compile(r'BRANCH_TARGETS ([^"]+)"')
SHAPE = re.compile(r"(?:HGMMA|QGMMA)\.(\d+)x(\d+)x(\d+)|(?:HMMA|QMMA)\.16(8|16)(\d+)\b")
TRIES = "SYNCS.PHASECHK"  # of a wait for a barrier in shared memory
ENDS = ("EXIT", "RET", "BRX", "JMP")  # behind them the next line is not what comes next
LANES = 32
DEEP = 32  # bytes of a row that one product of tiles sums over: 16 numbers of two bytes, 32 of one
UNITS = {  # what keeps which unit of a Hopper multiprocessor busy, by the first part of its name
    "tensor": "HGMMA QGMMA HMMA QMMA",
    "exp": "MUFU I2F F2I POPC FLO BREV",
    "fp32": "FADD FMUL FFMA FADD32I FMUL32I FFMA32I HFMA2 HADD2 HMUL2",
    "imad": "IMAD IMUL IDP",
    "alu": "FMNMX FSEL FSET FSETP FCHK HSETP2 HMNMX2 F2FP I2FP F2F IADD3 IABS VIADD VIADDMNMX "
    "VIMNMX IMNMX ISETP LEA LOP3 PLOP3 SHF SEL PRMT MOV SGXT BMSK P2R R2P CS2R",
    "fp64": "DADD DMUL DFMA DSETP DMNMX",
    "shared": "LDS LDSM STS STSM SHFL ATOMS",
    "": "LDL STL LDG STG RED ATOMG LDC LDGSTS LDGDEPBAR S2R S2UR R2UR NOP "
    "BRA BRX EXIT CALL RET BSSY BSYNC BAR DEPBAR MEMBAR FENCE ERRBAR CCTL WARPSYNC WARPGROUP SYNCS "
    "ELECT VOTE VOTEU NANOSLEEP USETMAXREG UTMALDG UTMASTG UTMACMDFLUSH UTMACCTL ARRIVES ACQBULK",
}
UNIT = {root: unit for unit, roots in UNITS.items() for root in roots.split()}


class Instruction(NamedTuple):
    """One line of machine code. `guard` is its predicate, "" where it has none.

    All lanes of a warp take the same instruction, and one whose predicate is false for all of
    them has been issued nevertheless.
    """

    name: str
    operands: str = ""
    guard: str = ""

    @property
    def uniform(self) -> bool:
        """Whether it is done once for a warp, by the uniform datapath, and not in every lane."""
        return self.name.startswith("U") or self.name.split(".")[0] == "R2UR"

    @property
    def unit(self) -> str | None:
        """The unit that it keeps busy; "" if it only has to be issued, None if we do not know it.

        Which pipe takes what: NVIDIA's Nsight Compute documentation, "Pipelines".
        """
        return "" if self.uniform else UNIT.get(self.name.split(".")[0])

    @property
    def moved(self) -> int:
        """Bytes that a warp moves through shared memory, at as many as it asks for in one lane."""
        if self.unit != "shared":
            return 0
        root, *parts = self.name.split(".")
        wide = {"64": 8, "128": 16, "U8": 1, "S8": 1, "U16": 2, "S16": 2}
        size = next((wide[part] for part in parts if part in wide), 4)
        tiles = int(parts[-1]) if root in ("LDSM", "STSM") and parts[-1].isdigit() else 1
        return LANES * size * tiles

    @property
    def factors(self) -> int:
        """Bytes that a warpgroup's product reads from shared memory, as one warp's share.

        The right factor always lies there, the left one where the operands say so.
        """
        shape = SHAPE.match(self.name)
        if shape is None or not shape[1]:
            return 0
        left = "gdesc" in self.operands.split(",")[1]
        return (int(shape[2]) + left * int(shape[1])) * DEEP // 4

    @property
    def flops(self) -> int:
        """FLOP of a product of tiles as one warp issues it; four of them share an HGMMA or QGMMA.

        >>> Instruction("HGMMA.64x128x16.F32.BF16").flops * 4 == 2 * 64 * 128 * 16
        True
        >>> Instruction("HMMA.16816.F32.BF16").flops == 2 * 16 * 8 * 16
        True
        """
        shape = SHAPE.match(self.name)
        if shape is None:
            return 0
        if shape[1]:
            return 2 * int(shape[1]) * int(shape[2]) * int(shape[3]) // 4
        return 2 * 16 * int(shape[4]) * int(shape[5])


@dataclass(frozen=True)
class Loop:
    """A loop: the label at its head, the heads of the loops that it lies in, and what is in it.

    `own` has its instructions without those of loops inside it, and `turn` those that one turn
    cannot avoid: of all ways from the head back to the head, the one that multiplies most and, of
    those, has the fewest instructions. A wait that finds what it waits for at once is one try.
    """

    head: str
    within: tuple[str, ...]  # the smallest first
    own: tuple[Instruction, ...]
    turn: tuple[Instruction, ...]

    @property
    def depth(self) -> int:
        """How many loops it lies in."""
        return len(self.within)

    def count(self, mnemonic: str) -> int:
        """How many instructions of a turn begin with those parts, as `Compiled.count` has it."""
        return sum(n for name, n in self._names.items() if f"{name}.".startswith(f"{mnemonic}."))

    @cached_property
    def _names(self) -> Counter[str]:
        return Counter(one.name for one in self.turn)

    @property
    def flops(self) -> int:
        """FLOP of the matrix products of a turn, of one warp."""
        return sum(one.flops for one in self.turn)

    @property
    def waits(self) -> bool:
        """Whether it does nothing but try a barrier again."""
        others = {one.name.split(".")[0] for one in self.own} - {"SYNCS", "BRA", "NANOSLEEP", "NOP"}
        return not others and any(one.name.startswith(TRIES) for one in self.own)


def instructions(sass: str) -> tuple[Instruction, ...]:
    """All instructions of a listing, in its order."""
    return tuple(_instruction(line) for line in LINE.finditer(sass) if line["name"])


def loops(sass: str) -> tuple[Loop, ...]:
    """The loops of a listing that a warp can get into, in the order of their heads.

    >>> sass = '''
    ... .L_1:
    ...     /*0000*/ FADD R1, R1, R2 ;
    ... .L_2:
    ...     /*0010*/ @P0 FMUL R1, R1, R1 ;
    ...     /*0020*/ @!P1 BRA `(.L_2) ;
    ...     /*0030*/ @!P2 BRA `(.L_1) ;
    ...     /*0040*/ EXIT ;'''
    >>> for loop in loops(sass): print(loop.head, loop.depth, *(one.name for one in loop.own))
    .L_1 0 FADD BRA
    .L_2 1 FMUL BRA
    """
    blocks = _blocks(sass)
    bodies = _bodies(blocks)
    found = []
    for head, body in sorted(bodies.items()):
        inner = {at for other in bodies if other != head and other in body for at in bodies[other]}
        around = [at for at in bodies if at != head and head in bodies[at]]
        around.sort(key=lambda at: len(bodies[at]))
        own = tuple(one for at in sorted(body - inner) for one in blocks[at].code)
        turn = tuple(one for at in _way(blocks, head, body) for one in blocks[at].code)
        found.append(Loop(blocks[head].label, tuple(blocks[at].label for at in around), own, turn))
    return tuple(found)


def hot(found: Iterable[Loop]) -> tuple[Loop, ...]:
    """The loops in which a kernel spends its time: the innermost of those that multiply tiles.

    In a kernel without products, the deepest loops. Waits are never among them.
    """
    busy = [loop for loop in found if not loop.waits]
    multiply = [loop for loop in busy if loop.flops]
    around = {head for loop in multiply for head in loop.within}
    deepest = max((loop.depth for loop in busy), default=0)
    return tuple(
        [loop for loop in multiply if loop.head not in around]
        or [loop for loop in busy if loop.depth == deepest]
    )


def plain(found: Iterable[Loop]) -> tuple[Loop, ...]:
    """The hot loop of each role of warps: of its loops the one with the most FLOP an instruction.

    So it is the one for tiles that need no mask. Loops that lie in the same loop are the same
    warps', one after the other; loops in different ones belong to different roles.
    """
    roles: dict[tuple[str, ...], Loop] = {}
    for loop in hot(found):
        other = roles.get(loop.within)
        if other is None or loop.flops * len(other.turn) > other.flops * len(loop.turn):
            roles[loop.within] = loop
    return tuple(roles.values())


# --- pieces of code, and what follows what --------------------------------------------------------


@dataclass
class _Block:
    """Instructions that are always issued together, and the blocks that may come next."""

    label: str
    code: list[Instruction]
    nexts: tuple[int, ...] = ()


def _instruction(line: re.Match) -> Instruction:
    return Instruction(line["name"], line["rest"].strip(), line["guard"] or "")


def _blocks(sass: str) -> list[_Block]:
    """The listing cut behind every branch and before every label."""
    blocks = [_Block("", [])]
    places: dict[str, int] = {}
    for line in LINE.finditer(sass):
        if line["label"]:
            if blocks[-1].code:
                blocks.append(_Block("", []))
            blocks[-1].label = blocks[-1].label or line["label"]
            places[line["label"]] = len(blocks) - 1
            continue
        one = _instruction(line)
        blocks[-1].code.append(one)
        if one.name.split(".")[0] in (*ENDS, "BRA"):
            blocks.append(_Block("", []))
    for at, block in enumerate(blocks):
        block.nexts = tuple(dict.fromkeys(_nexts(block, at, places, len(blocks))))
    return blocks


def _nexts(block: _Block, at: int, places: Mapping[str, int], count: int) -> Iterable[int]:
    """The blocks that may follow one: where its last instruction branches to, and the next."""
    last = block.code[-1] if block.code else Instruction("NOP")
    root = last.name.split(".")[0]
    named = TARGETS.search(last.operands) if root == "BRX" else None
    to = named[1].split(",") if named else TARGET.findall(last.operands) if root == "BRA" else []
    yield from (places[label.strip()] for label in to if label.strip() in places)
    before, _, _ = last.operands.partition("`(")
    sure = last.guard == "" and (root in ENDS or (root == "BRA" and not before.strip()))
    if not sure and at + 1 < count:
        yield at + 1


def _bodies(blocks: list[_Block]) -> dict[int, set[int]]:
    """The head of each loop -> its blocks: all from which one gets back without leaving."""
    over = _dominators(blocks)
    before: dict[int, list[int]] = {at: [] for at in over}
    for at in over:
        for to in blocks[at].nexts:
            before[to].append(at)
    bodies: dict[int, set[int]] = {}
    for at in over:
        for head in set(blocks[at].nexts) & over[at]:
            body = bodies.setdefault(head, {head})
            new = [at]
            while new:
                block = new.pop()
                if block not in body:
                    body.add(block)
                    new += before[block]
    return bodies


def _dominators(blocks: list[_Block]) -> dict[int, set[int]]:
    """For each block that can be reached from the first: those that every way to it passes."""
    order, stack = [], [0]
    while stack:
        at = stack.pop()
        if at not in order:
            order.append(at)
            stack += blocks[at].nexts
    before: dict[int, list[int]] = {at: [] for at in order}
    for at in order:
        for to in blocks[at].nexts:
            before[to].append(at)
    over = {at: set(order) for at in order} | {0: {0}}
    changed = True
    while changed:
        changed = False
        for at in order[1:]:
            new = set.intersection(*(over[other] for other in before[at])) | {at}
            changed |= new != over[at]
            over[at] = new
    return over


def _way(blocks: list[_Block], head: int, body: set[int]) -> tuple[int, ...]:
    """The blocks of the way round a loop that multiplies most and, of those, is the shortest."""
    best = {head: _cost(blocks, (head,))}
    new, round_ = [head], None
    while new:
        way = best[new.pop(0)][2]
        for to in blocks[way[-1]].nexts:
            if to == head and (round_ is None or _cost(blocks, way) < round_):
                round_ = _cost(blocks, way)
            if to not in body or to in way:
                continue
            cost = _cost(blocks, (*way, to))
            if to not in best or cost < best[to]:
                best[to] = cost
                new.append(to)
    return round_[2]


def _cost(blocks: list[_Block], way: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    """Less FLOP cost more, then more instructions; then the order of the listing decides."""
    code = [one for at in way for one in blocks[at].code]
    return -sum(one.flops for one in code), len(code), way
