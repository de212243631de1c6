"""What the kernels need of Triton that Gluon does not offer: the one file that looks behind it.

Names that begin with an underscore, or that the compiler keeps to itself, may be gone with the
next release. Then what uses them says so, by name, and everything else works on.
"""

import triton

try:
    from triton._C.libtriton import ir
    from triton.experimental.gluon.language._core import builtin

    ADD = ir.DESCRIPTOR_REDUCE_KIND.ADD
except (ImportError, AttributeError):
    builtin, ADD = None, None


def _tma_add(desc, at, buf, _semantic=None):
    """Like tma_store, but what is sent is added to what is there: in memory, a number at a time.

    The machine has it (cp.reduce.async.bulk) and Triton's compiler too (ttng.async_tma_reduce),
    but Gluon's Python has no word for it yet.
    """
    make = getattr(_semantic.builder, "create_async_tma_reduce", None)
    if make is None:
        _missing()
    make(ADD, desc.handle, _semantic._convert_to_ir_values(at, require_i64=False), buf.handle)


def _missing(*_, **__):
    raise RuntimeError(
        f"Triton {triton.__version__} no longer has the builder's create_async_tma_reduce, which"
        " weft.kernels.hopper.fused needs: weft.kernels.hopper.attention does without"
    )


tma_add = builtin(_tma_add) if ADD is not None else _missing
