"""BUILD. Small models whose attention and friends are passed in.

No parallelism inside. May import: torch, weft.ref and weft.plan.
"""
