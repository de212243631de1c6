"""What is around the answers to this topic while they are graded."""

LOADED = ("torch",)  # imported before them, once
CLOSED = (  # of the library, what the exercises ask for, and what is made of it
    "weft.plan.composing",
    "weft.plan.memory",
    "weft.plan.pipeline",
    "weft.plan.processes",
    "weft.plan.shape",
    "weft.explore.composing",
    "weft.draw.composing",
    "weft.ref",
    "weft.kernels",
    "weft.nn",
    "weft.run",
    "weft.bench",
    "weft.meter",
    "torch.distributed.distributed_c10d",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    "probe",  # beside the answers, where students try them: it works out what is expected
)
