"""What an interpreted kernel reads and multiplies, counted where the interpreter does it."""

from collections import Counter
from contextlib import contextmanager
from math import prod

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder as Builder


@contextmanager
def counted(**tensors):
    """Elements read of each tensor by its name, of all as "all", and multiply-adds as "products".

    An element that two programs read, or one reads twice, counts twice. What a mask keeps off is
    not read.
    """
    found = Counter()
    load, dot = Builder.create_masked_load, Builder.create_dot
    ranges = {name: (x.data_ptr(), x.data_ptr() + x.nbytes) for name, x in tensors.items()}

    def create_masked_load(self, ptrs, mask, *rest):
        given = np.broadcast_to(mask.data, ptrs.data.shape)
        read = ptrs.data[given]
        found["all"] += read.size
        for name, (first, end) in ranges.items():
            found[name] += int(((read >= first) & (read < end)).sum())
        return load(self, ptrs, mask, *rest)

    def create_dot(self, a, b, *rest):
        found["products"] += prod(a.data.shape) * b.data.shape[-1]
        return dot(self, a, b, *rest)

    Builder.create_masked_load, Builder.create_dot = create_masked_load, create_dot
    try:
        yield found
    finally:
        Builder.create_masked_load, Builder.create_dot = load, dot
