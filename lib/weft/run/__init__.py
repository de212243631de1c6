"""ACT. Plans executed by real processes; the only layer that communicates.

Groups, devices and clocks are arguments. May import: torch, torch.distributed,
weft.process, weft.plan, weft.ref, weft.nn and weft.meter.
"""
