"""Triton's interpreter, mended: bfloat16 has to round as on a GPU, and a call has to be quick.

Each mend replaces something private, so it is for the releases in SEEN; a test asks about a newer
one, and shows what goes wrong without. The interpreter keeps a bfloat16 as the 16 bits it is made
of. It multiplies and adds those bits as if they were integers, in tl.dot too, and cuts a float32
off where a GPU rounds to the nearest: a kernel that is right on a GPU would be wrong on a laptop.
And when one kernel calls another, tl.sum for one, it searches all of triton.language for what to
replace, though it has replaced it already. What two numbers compare to has the numbers' type for
it, and a mask of a row that is made of it would be one of floats. And each value's type and shape
it describes anew, which takes longer than to compute the value.
"""

import warnings
from functools import cache, wraps
from math import prod

import torch

SEEN = "3.6", "3.7"  # releases of Triton whose interpreter needs all of this
DONE, COMPARES = "weft_mended", "weft_compares"


def mend() -> None:
    """Mend the interpreter of this process; doing it twice changes nothing."""
    mend_bfloat16()
    mend_calls()
    mend_comparisons()
    mend_counts()
    mend_types()
    mend_warnings()


def mend_calls() -> None:
    """Let a kernel call another without another search, where all is replaced already."""
    from triton import language as tl
    from triton.runtime.interpreter import InterpretedFunction as Function
    from triton.runtime.interpreter import InterpreterError

    if getattr(Function, DONE, False):
        return
    call = Function.__call__

    @wraps(call)
    def quick(self, *args, **kwargs):
        if not hasattr(self, "weft_modules"):
            known = self.fn.__globals__.values()
            self.weft_modules = [x for x in known if x is tl or x is tl.core]
        modules = self.weft_modules
        if not modules or any(tl.core.is_builtin(module.load) for module in modules):
            return call(self, *args, **kwargs)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise InterpreterError(repr(error)) from error

    Function.__call__ = quick
    setattr(Function, DONE, True)


def mend_comparisons() -> None:
    """Have a comparison give booleans: one of single numbers can then be part of a mask."""
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    binary = Builder.binary_op
    if getattr(binary, COMPARES, False):
        return

    @wraps(binary)
    def binary_op(self, lhs, rhs, op):
        made = binary(self, lhs, rhs, op)
        return TensorHandle(made.data, tl.int1) if made.data.dtype == bool else made

    setattr(binary_op, COMPARES, True)
    Builder.binary_op = binary_op


def mend_counts() -> None:
    """Let a loop count to what a kernel computed: NumPy 2.5 makes no int of an array with a dim."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor
    if getattr(patch, DONE, False):
        return

    @wraps(patch)
    def patch_too(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    setattr(patch_too, DONE, True)
    interpreter._patch_lang_tensor = patch_too


def mend_types() -> None:
    """Describe a type or a shape once, and not with each value that has it.

    That and a quicker way into its functions take a third of an interpreted kernel's time away.
    """
    from triton import language as tl
    from triton._utils import validate_block_shape
    from triton.language.core import _unwrap_shape
    from triton.runtime import interpreter

    if getattr(interpreter, DONE, False):
        return
    kind_of, kinds, sides_of = interpreter._get_np_dtype, {}, {}

    @cache
    def of_tensor(shape):
        return tl.core.tuple([tl.constexpr(side) for side in shape]), tl.constexpr(prod(shape))

    @cache
    def of_block(shape):
        sides, numel = tl.core.tuple(shape), validate_block_shape(shape)
        sides_of[id(sides)] = shape  # it stays in the cache, and no other has its id
        return sides, numel

    def known(shape):
        return sides_of.get(id(shape)) or tuple(_unwrap_shape(shape))

    def tensor(self, handle, type):
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = of_tensor(known(type.shape) if type.is_block() else ())

    def block_type(self, element_ty, shape):
        sides = known(shape)
        if not sides:
            raise TypeError("0d block_type is forbidden")
        self.element_ty, (self.shape, self.numel) = element_ty, of_block(sides)

    def in_numpy(kind):
        kind = kind.element_ty if isinstance(kind, tl.block_type) else kind
        if isinstance(kind, tl.pointer_type):
            return kind_of(kind)
        if kind.name not in kinds:
            kinds[kind.name] = kind_of(kind)
        return kinds[kind.name]

    def patch_attr(target, name, member, builder, scope):
        def call(*args, **kwargs):
            kwargs["_semantic"] = interpreter.interpreter_semantic
            return member(*args, **kwargs)

        scope.set_attr(target, name, call)

    interpreter._patch_attr = patch_attr
    tl.tensor.__init__, tl.block_type.__init__ = tensor, block_type
    tl.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    interpreter._get_np_dtype = in_numpy
    setattr(interpreter, DONE, True)


def mend_warnings() -> None:
    """Let NaN come of infinities without a word, as on a GPU: NumPy would warn."""
    from triton.runtime.interpreter import GridExecutor

    run = GridExecutor.__call__
    if getattr(run, DONE, False):
        return

    @wraps(run)
    def quiet(self, *args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return run(self, *args, **kwargs)

    setattr(quiet, DONE, True)
    GridExecutor.__call__ = quiet


def mend_bfloat16() -> None:
    """Teach the interpreter to round to bfloat16, and to compute in float32 in between.

    Casts, tl.dot, and arithmetic and comparisons of two tensors are mended; reductions of
    bfloat16 are not, and a kernel takes its sums and maxima in float32 anyway.
    """
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    if getattr(Builder, DONE, False):
        return
    cast, dot, binary, fma = (
        getattr(Builder, name) for name in ("cast_impl", "create_dot", "binary_op", "create_fma")
    )

    def wide(x):
        if x.dtype.scalar != tl.bfloat16:
            return x
        bits = torch.from_numpy(x.data.copy().view("int16")).view(torch.bfloat16)
        return TensorHandle(bits.float().numpy(), tl.float32)

    def narrow(x):
        bits = torch.from_numpy(x.data.astype("float32")).bfloat16().view(torch.int16)
        return TensorHandle(bits.numpy().view("uint16"), tl.bfloat16)

    @wraps(cast)
    def cast_impl(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target or tl.bfloat16 not in (source, target):
            return cast(self, src, dst_type)
        return narrow(src) if target == tl.bfloat16 else cast(self, wide(src), dst_type)

    @wraps(dot)
    def create_dot(self, a, b, *rest):
        return dot(self, wide(a), wide(b), *rest)

    @wraps(binary)
    def binary_op(self, lhs, rhs, op):
        if lhs.dtype.scalar != tl.bfloat16:
            return binary(self, lhs, rhs, op)
        x, y = wide(lhs), wide(rhs)
        made = op(x.data, y.data)
        if made.dtype == bool:
            return TensorHandle(made, tl.int1)
        return narrow(TensorHandle(made, tl.float32))

    @wraps(fma)
    def create_fma(self, x, y, z):
        if z.dtype.scalar != tl.bfloat16:
            return fma(self, x, y, z)
        return narrow(fma(self, wide(x), wide(y), wide(z)))

    for mended in (cast_impl, create_dot, binary_op, create_fma):
        setattr(Builder, mended.__name__, mended)
    setattr(Builder, DONE, True)
