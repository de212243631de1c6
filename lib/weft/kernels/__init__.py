"""GO FAST. Triton and Gluon kernels with the signatures of weft.ref.

One file per kernel, versions in order. Kernels never import weft.ref: the tests bring the two
together. May import: torch, triton and weft.plan.
"""
