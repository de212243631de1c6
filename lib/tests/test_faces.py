"""What programs outside this repository call is there, under its name and with its arguments."""

import inspect
from importlib import import_module

import pytest

NAMES = {  # module -> what is called by name, or has a signature of its own below
    "weft.plan.pipeline": "Plan SCHEDULES",
    "weft.plan.simulate": "Timeline Deadlock",
    "weft.plan.hardware": "Chip Link CHIPS LINKS",
    "weft.plan.shape": "SHAPES of_config",
    "weft.plan.memory": "infinity deepspeed_zero3",
    "weft.plan.precision": "Format FORMATS",
    "weft.plan.collectives": "STEPS",
    "weft.ref.precision": "LossScaler MasterAdam",
    "weft.run.world": "World RankFailed",
    "weft.run.train": "main",
    "weft.meter": "traffic live Sram SramOverflow",
}
ATTENTION = "q k v causal scale mask lse"
PAGED = "q k_cache v_cache block_table lengths scale"
SIGNATURES = {  # module and name -> the first parameters, in order
    "weft.plan.pipeline Action": "kind microbatch stage",
    "weft.plan.pipeline gpipe": "p m",
    "weft.plan.pipeline one_f_one_b": "p m",
    "weft.plan.pipeline interleaved": "p m v",
    "weft.plan.pipeline zb_h1": "p m",
    "weft.plan.pipeline zb_h2": "p m",
    "weft.plan.pipeline zb_v": "p m",
    "weft.plan.pipeline dualpipe_v": "p m",
    "weft.plan.comm lower": "plan fuse",
    "weft.plan.simulate simulate": "plan f b w c sends",
    "weft.draw.pipeline text": "timeline",
    "weft.draw.pipeline svg": "timeline",
    "weft.plan.roofline Work": "flops bytes",
    "weft.plan.roofline vector_add": "n size",
    "weft.plan.roofline dot": "n size",
    "weft.plan.roofline matvec": "m n size",
    "weft.plan.roofline matmul": "m n k size",
    "weft.plan.roofline attention": "T S H K size algorithm causal sram",
    "weft.plan.roofline decode": "S H G K size",
    "weft.plan.roofline ridge": "chip dtype",
    "weft.plan.roofline attainable": "work chip dtype",
    "weft.plan.roofline seconds": "work chip dtype",
    "weft.plan.roofline wall": "work chip dtype",
    "weft.plan.shape ModelShape": "layers width heads vocab seq kv_heads hidden",
    "weft.plan.memory model_states": "params d stage",
    "weft.plan.memory activations": "shape microbatch t p m v sequence_parallel recompute",
    "weft.plan.memory kv_cache": "shape tokens size",
    "weft.plan.memory deepspeed_zero2": "total_params gpus_per_node nodes cpu_offload",
    "weft.plan.memory efficiency": "intensity bandwidth peak",
    "weft.plan.collectives Send": "source target chunk reduce",
    "weft.plan.collectives ring_all_reduce": "n",
    "weft.plan.collectives ring_reduce_scatter": "n",
    "weft.plan.collectives ring_all_gather": "n",
    "weft.plan.collectives tree_all_reduce": "n",
    "weft.plan.collectives all_to_all": "n",
    "weft.plan.collectives volume": "op nbytes n",
    "weft.plan.collectives seconds": "op nbytes n link algorithm",
    "weft.plan.collectives bus_factor": "op n",
    "weft.ref.attention attention": ATTENTION,
    "weft.ref.attention merge": "o1 lse1 o2 lse2",
    "weft.ref.decode paged_attention": PAGED,
    "weft.kernels compile_for": "kernel target",
    "weft.kernels.attention attention": ATTENTION,
    "weft.kernels.hopper attention": "q k v causal scale",
    "weft.kernels.decode paged_attention": PAGED,
    "weft.run.world launch": "fn n",
    "weft.run.pipeline run": "plan stages microbatches loss world",
    "weft.run.zero Zero": "module optimizer stage world",
    "weft.run.offload Store": "folder",
    "weft.grade check": "stem answers hidden",
    "weft.plan.experts capacity": "tokens experts factor k",
    "weft.plan.experts dropped": "counts capacity",
    "weft.plan.experts sent": "tokens width e k size",
    "weft.ref.experts route": "scores k capacity",
    "weft.ref.experts switch": "x router up down k factor",
    "weft.ref.experts balance": "scores routes",
    "weft.kernels.experts grouped_matmul": "x w sizes",
    "weft.nn.experts SwitchMLP": "width hidden experts k factor",
    "weft.run.experts ExpertParallel": "mlp world factor",
}


@pytest.mark.parametrize("module", NAMES)
def test_what_is_called_by_name_is_there(module):
    assert [
        name for name in NAMES[module].split() if not hasattr(import_module(module), name)
    ] == []


@pytest.mark.parametrize("face", SIGNATURES)
def test_a_face_takes_its_arguments(face):
    module, name = face.split()
    have = list(inspect.signature(getattr(import_module(module), name)).parameters)
    wanted = SIGNATURES[face].split()
    assert have[: len(wanted)] == wanted
