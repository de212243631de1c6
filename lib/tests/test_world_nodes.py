"""Two nodes: torchrun on both, one launch across them, with gloo over a virtual cable."""

import json
import os
import sys
from pathlib import Path

import namespaces

LIB = Path(__file__).parents[1]

SCRIPT = """
import json, os, sys
import torch, torch.distributed as dist
from weft.run.world import RankFailed, launch

def work(world, scale):
    total = torch.tensor([scale * world.rank])
    dist.all_reduce(total, group=world.group())
    grid = world.grid(node=2, local=2)
    across = torch.tensor([world.rank])
    dist.all_reduce(across, group=grid.group("node"))
    return world.rank, total.item(), across.item(), os.readlink("/proc/self/ns/net")

def wrong(world):
    if world.rank == 3:
        raise ValueError("on the second node")
    dist.barrier(group=world.group())

rows = launch(work, 4, 10)
try:
    launch(wrong, 4)
except RankFailed as failure:
    rows.append([failure.rank, failure.cause])
os.write(1, json.dumps(rows).encode() + b"\\n")  # at once, since four of them write to one pipe
"""

NODE = (
    "{python} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-id weft"
    " --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29500 --rdzv-conf is_host={host}"
    " --local-addr 10.77.0.{address} {script}"
)


def test_one_launch_across_two_nodes(tmp_path):
    namespaces.require()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    first, second = (
        NODE.format(python=sys.executable, host=host, address=address, script=script)
        for host, address in ((1, 1), (0, 2))
    )
    paths = os.pathsep.join([str(LIB), os.environ["PYTHONPATH"]])
    done = namespaces.pair(
        f"nsenter -t $second -n {second} & other=$!\n{first}\nwait $other",
        env={**os.environ, "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "eth0"},
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 4
    assert all(row == rows[0] for row in rows)
    *values, failure = rows[0]
    homes = [value.pop() for value in values]
    assert homes[0] == homes[1] != homes[2] == homes[3]
    assert values == [[rank, 60, 2 * rank + (2 if rank < 2 else -2)] for rank in range(4)]
    assert failure == [3, "ValueError: on the second node"]
