"""What an interpreted kernel reads, writes and multiplies, counted where that is done."""

from collections import Counter
from contextlib import contextmanager
from math import prod

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder as Builder


@contextmanager
def counted(**tensors):
    """Elements read of each tensor by its name, of all as "all", and multiply-adds as "products".

    Those that are written count as "NAME written" and "all written". An element that two programs
    read, or one reads twice, counts twice. What a mask keeps off is not read.
    """
    found = Counter()
    load, dot, store = Builder.create_masked_load, Builder.create_dot, Builder.create_masked_store
    ranges = {name: (x.data_ptr(), x.data_ptr() + x.nbytes) for name, x in tensors.items()}

    def count(ptrs, mask, how=""):
        moved = ptrs.data[np.broadcast_to(mask.data, ptrs.data.shape)]
        found[f"all{how}"] += moved.size
        for name, (first, end) in ranges.items():
            found[f"{name}{how}"] += int(((moved >= first) & (moved < end)).sum())

    def create_masked_load(self, ptrs, mask, *rest):
        count(ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def create_masked_store(self, ptrs, value, mask, *rest):
        count(ptrs, mask, " written")
        return store(self, ptrs, value, mask, *rest)

    def create_dot(self, a, b, *rest):
        found["products"] += prod(a.data.shape) * b.data.shape[-1]
        return dot(self, a, b, *rest)

    Builder.create_masked_load, Builder.create_dot = create_masked_load, create_dot
    Builder.create_masked_store = create_masked_store
    try:
        yield found
    finally:
        Builder.create_masked_load, Builder.create_dot = load, dot
        Builder.create_masked_store = store
