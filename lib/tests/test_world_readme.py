"""The README's section "More than one machine": its lines run as they stand, small and on gloo."""

import os
import re
import subprocess
import sys
from pathlib import Path

import namespaces
import pytest

SMALL = " --steps 2 --batch 1 --seq 8 --width 8 --heads 2 --text text.txt --timeout 100"


@pytest.fixture
def blocks(root) -> list[tuple[str, str]]:
    """The section's blocks of code, each with its language, every training made small."""
    text = (root / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## More than one machine$(.*?)^## ", text, re.M | re.S)
    assert section, "README.md has no section 'More than one machine'"
    found = re.findall(r"^```(\w+)\n(.*?)^```$", section[1], re.M | re.S)
    smaller = [(language, re.sub(r"(--schedule \w+)", rf"\1{SMALL}", code))
               for language, code in found]  # fmt: skip
    assert [language for language, _ in found] == ["bash"] * 3 + ["slurm", "python"]
    return smaller


@pytest.fixture
def folder(tmp_path) -> Path:
    """What a person has: an environment to activate and a text to learn."""
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f'PATH="{Path(sys.executable).parent}:$PATH"\n')
    (tmp_path / "text.txt").write_text("warp and weft " * 100)
    return tmp_path


def environment(root: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    lib = os.pathsep.join([str(root / "lib"), os.environ["PYTHONPATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": lib, **more}


def fewer(code: str) -> str:
    """One process on each of the two nodes, where the README has four."""
    smaller = code.replace("--nproc-per-node 4", "--nproc-per-node 1")
    return smaller.replace("--ranks 8", "--ranks 2")


def losses(output: str) -> list[str]:
    return re.findall(r"loss ([\d.]+)", output)


def test_one_machine(root, folder, blocks):
    command = blocks[0][1]
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment(root),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 2


def words(code: str) -> list[str]:
    """The words of the last `torchrun` in a block."""
    command = code.replace("\\\n", " ").rpartition("torchrun ")[2]
    return command.strip().rstrip("'").replace('"', "").split()


def test_two_machines_are_told_what_the_slurm_file_tells_them(blocks):
    """That file runs below; by hand it is the same command, with each machine's own number."""
    by_slurm = words(blocks[3][1])
    for rank, (_, code) in enumerate(blocks[1:3]):
        by_hand = words(code)
        told = {"$SLURM_NNODES": "2", "$SLURM_NODEID": str(rank), "$MASTER_ADDR": "node-a"}
        expected = [told.get(word, word) for word in by_slurm]
        assert by_hand == expected


def test_the_slurm_file(root, folder, blocks):
    """srun and scontrol are ours: they start the task on both nodes and name the first."""
    namespaces.require()
    tools = folder / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\nprintf '10.77.0.1\\n10.77.0.2\\n'\n")
    (tools / "srun").write_text(
        "#!/bin/bash -e\n"
        'while [[ "$1" == --* ]]; do shift; done\n'
        'SLURM_NODEID=1 nsenter -t "$SECOND" -n "$@" & other=$!\n'
        'SLURM_NODEID=0 "$@"\n'
        "wait $other\n"
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (folder / "weft.sbatch").write_text(fewer(blocks[3][1]))
    surroundings = environment(root, GLOO_SOCKET_IFNAME="eth0", SLURM_NNODES="2")
    surroundings |= {"SLURM_JOB_NODELIST": "a,b", "PATH": f"{tools}:{surroundings['PATH']}"}
    done = namespaces.pair(
        "export SECOND=$second\nbash -e weft.sbatch", cwd=folder, env=surroundings, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 2


def test_a_function_of_ones_own(root, folder, blocks):
    (folder / "sum.py").write_text(blocks[4][1])
    commands = [["python", "sum.py"], ["torchrun", "--nproc-per-node", "4", "sum.py"]]
    for command, copies in zip(commands, (1, 4), strict=True):
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(root),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("[6, 6, 6, 6]") == copies
