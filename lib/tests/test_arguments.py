"""Every wrong argument of every public function is refused by name, or answered rightly.

What is exempt stands below with its reason, and nothing may stand there in vain. A name stands for
a function or a class, for all that begins with it where it ends in a dot, and for one parameter
where it has one behind a colon.
"""

import os
import sys
from pathlib import Path

import pytest
from valid_calls import INSTANCES, VALUES
from wrong_arguments import complaints

EXEMPT = {  # layer -> reason -> names
    "plan": {
        "the words of the checks themselves, which are told the name of what they check":
            "plan.arguments. plan.tensors. plan.simulate.check_duration plan.zero.checked_buckets",
        "they compare numbers in tensors: the references that ask them have what they refuse":
            "plan.linear.check plan.linear.check_feature plan.linear.check_pair"
            " plan.linear.check_per_token plan.linear.check_state plan.griffin.check_gates"
            " plan.griffin.check_scan plan.tensor.check_words",
        "how commands are spelled": "plan.processes.Launcher",
        "a mesh names the arguments": "plan.processes.rank_at",
        "what functions give: whoever makes one says what is in it":
            "plan.composing.Estimate plan.composing.megatron.MegatronLine plan.decode.Batching"
            " plan.decode.Service plan.memory.Passing plan.memory.States plan.offload.Stream"
            " plan.pipeline.Profile",
        "numbers of either sign, and infinite ones, are what they are about":
            "plan.attention.online:scores plan.attention.online:values"
            " plan.griffin.half_life:gate plan.griffin.slope:most"
            " plan.linear.answers:asked plan.linear.written:keys plan.linear.written:values"
            " plan.hopper.Played.between:start plan.precision.Format.round:x plan.precision.add"
            " plan.precision.Format.spacing plan.precision.decayed:start"
            " plan.precision.in_blocks:numbers plan.precision.least_update:weight"
            " plan.precision.summed:start plan.precision.summed:update"
            " plan.backward.rounded:x plan.backward.score_errors plan.backward.turned",
        "the simulation asks at every step of a kernel that has been checked":
            "plan.hopper.Kernel.uses plan.hopper.Kernel.asynchronous plan.hopper.Kernel.lag"
            " plan.hopper.Kernel.needs",
        "whether rows and ranks are a schedule is for `validate` to say":
            "plan.pipeline.Plan:ranks plan.pipeline.Plan:lowered",
        "no room is CacheFull, a MemoryError, whoever asks for how much":
            "plan.decode.Blocks.add:tokens plan.decode.Blocks.extend:tokens",
        "`weft roofline` calls it an operation, and so does the sentence":
            "plan.roofline.operation:text",
    },
    "ref": {"a line of the formula, on scores that attention made": "ref.attention.softmax"},
    "kernels": {
        "the kernels of other rules give it functions": "kernels.linear.differentiable:forward",
        "what a compiler gives and is given": "kernels.Compiled kernels.Pass",
        "compiles for seconds: test_compile has what it refuses": "kernels.compile_for",
        "called by autograd alone": "kernels.attention.NoSecondDerivative",
        "what kernels of other topics have checked before":
            "kernels.attention.chip kernels.attention.in_rows kernels.attention.by_rows"
            " kernels.attention.problem kernels.attention.view kernels.hopper.aligned"
            " kernels.hopper.blocks kernels.hopper.check_device kernels.hopper.described"
            " kernels.hopper.launch_blocks",
    },
    "run": {
        "options of a command: the trainers' tests have what they refuse": "run.train.main",
        "torch.nn.Linear's own, in torch's words": "run.offload.TiledLinear",
        "descriptors of open files: the system refuses them":
            "run.offload.direct run.offload.durable run.offload.forget",
        "what launch gives": "run.world.World",
        "what a function takes besides is the function's": "run.world.launch:args",
        "who has no time to start has failed: RankFailed": "run.world.launch:timeout",
        "what a checkpoint of several Zeros is made of: run.composing has checked what it gives":
            "run.zero.checkpoint.agreed_on run.zero.checkpoint.collected"
            " run.zero.checkpoint.fits run.zero.checkpoint.gathered"
            " run.zero.checkpoint.misfits_of_settings run.zero.checkpoint.read"
            " run.zero.checkpoint.read_parts run.zero.checkpoint.settings"
            " run.zero.checkpoint.take run.zero.checkpoint.write",
        "a folder without a checkpoint: test_zero_checkpoint has what else it refuses":
            "run.zero.checkpoint.load",
    },
}  # fmt: skip


def exempt(layer: str, label: str, line: str) -> str | None:
    """The name in EXEMPT that a complaint falls under."""
    parameter = f"{label}:{line.split()[0]}"
    for name in " ".join(EXEMPT[layer].values()).split():
        if name in (label, parameter) or (name.endswith(".") and label.startswith(name)):
            return name
    return None


def found_in(layer: str, folder: Path) -> dict[str, list[str]]:
    """The complaints of a layer; those of runtimes from a process of its own, a world of one."""
    if layer == "plan":
        return complaints("plan", VALUES, INSTANCES)
    if layer == "run":
        from weft.run.world import launch

        support = str(Path(__file__).parent / "support")
        return launch(on_one_rank, 1, support, str(folder), timeout=600)[0]
    from valid_tensors import VALUES as TENSORS

    return complaints(layer, TENSORS)


def on_one_rank(world, support: str, folder: str) -> dict[str, list[str]]:
    """The complaints of the runtimes, which may write into a folder."""
    os.chdir(folder)
    sys.path.append(support)
    from valid_runs import values
    from wrong_arguments import complaints

    return complaints("run", values(world))


@pytest.mark.parametrize("layer", EXEMPT)
def test_every_wrong_argument_is_named(layer, monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "TRITON_INTERPRET", "1")
    wrong, needed = {}, set()
    for label, lines in found_in(layer, tmp_path).items():
        for line in lines:
            name = exempt(layer, label, line)
            needed.add(name)
            if name is None:
                wrong.setdefault(label, []).append(line)
    assert wrong == {}
    assert set(" ".join(EXEMPT[layer].values()).split()) - needed == set(), "exempt in vain"
