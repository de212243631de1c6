"""Flat parts of named tensors, as torch.distributed.checkpoint plans, writes and reads them.

It finds out which rank writes what several have, whether all of a tensor is there, and which
parts of those on the disk a rank needs. Its own planners take whole tensors and DTensors, and its
own storage keeps a pickle; ours take parts, and keep bytes and JSON.
"""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from weft.run.zero.checkpoint.files import create, digest, read_part
from weft.run.zero.checkpoint.state import Part


def _chunk(part: Part) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size([part.start]), torch.Size([part.tensor.numel()]))


class SaveParts(DefaultSavePlanner):
    """Plans to write parts; a part that several ranks have goes to one of them."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        items = []
        for name, part in self.state_dict.items():
            properties = TensorProperties(dtype=part.tensor.dtype)
            data = TensorWriteData(_chunk(part), properties, torch.Size([part.numel]))
            index = MetadataIndex(name, [part.start])
            items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        self.plan = SavePlan(items)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        return self.state_dict[index.fqn].tensor


class LoadParts(DefaultLoadPlanner):
    """Plans to read parts, each from all parts on the disk that it overlaps."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self, state_dict: dict[str, Part], metadata: Metadata | None = None, is_coordinator=False
    ) -> None:
        self.state_dict, self.metadata = state_dict, metadata

    def create_local_plan(self) -> LoadPlan:
        items: list[ReadItem] = []
        for name, part in self.state_dict.items():
            there = self.metadata.state_dict_metadata[name]
            items += create_read_items_for_chunk_list(name, there, [_chunk(part)])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        return self.state_dict[index.fqn].tensor


class WriteFiles(StorageWriter):
    """Writes a file for each rank, and has in `tensors` what is where, on the first."""

    def __init__(self, place: Path, rank: int):
        self.place, self.name = place, f"rank-{rank:04d}.bin"
        self.tensors: dict[str, dict[str, Any]] = {}

    def write_data(self, plan: SavePlan, planner: DefaultSavePlanner) -> Future:
        """Write the parts one behind the other; they are on the disk when this returns."""
        results = self._write(plan.items, planner) if plan.items else []
        done: Future = Future()
        done.set_result(results)
        return done

    def _write(self, items: list[WriteItem], planner: DefaultSavePlanner) -> list[WriteResult]:
        results, at = [], 0
        with create(self.place / self.name) as write:
            for item in items:
                data = _bytes(planner.resolve_data(item).detach().cpu().contiguous())
                write(data)
                where = self.name, at, len(data), digest(data)
                results.append(WriteResult(item.index, len(data), where))
                at += len(data)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Take down where each part is."""
        for name, tensor in metadata.state_dict_metadata.items():
            dtype = str(tensor.properties.dtype).removeprefix("torch.")
            self.tensors[name] = {"dtype": dtype, "numel": tensor.size[0], "parts": []}
        for result in (result for rank in results for result in rank):
            parts = self.tensors[result.index.fqn]["parts"]
            parts.append([result.index.offset[0], *result.storage_data])

    def reset(self, checkpoint_id: object = None) -> None: ...

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:
        return True


class ReadFiles(StorageReader):
    """Reads parts, each whole and only if its checksum is right, and gives what is asked of it."""

    def __init__(self, place: Path, tensors: dict[str, dict[str, Any]]):
        self.place, self.tensors = place, tensors
        self.parts = {
            MetadataIndex(name, [start]): (getattr(torch, tensor["dtype"]), where)
            for name, tensor in tensors.items()
            for start, *where in tensor["parts"]
        }

    def read_metadata(self) -> Metadata:
        """What there is, in the words of torch."""
        described = {}
        for name, tensor in self.tensors.items():
            dtype = getattr(torch, tensor["dtype"])
            chunks = [
                ChunkStorageMetadata(torch.Size([start]), torch.Size([size // dtype.itemsize]))
                for start, _, _, size, _ in tensor["parts"]
            ]
            whole = torch.Size([tensor["numel"]])
            described[name] = TensorStorageMetadata(TensorProperties(dtype), whole, chunks)
        return Metadata(described)

    def read_data(self, plan: LoadPlan, planner: DefaultLoadPlanner) -> Future:
        """Fill what is wanted."""
        for item in plan.items:
            dtype, where = self.parts[item.storage_index]
            data = bytearray(read_part(self.place, *where))
            first, count = item.storage_offsets[0], item.lengths[0]
            target = planner.resolve_tensor(item)
            target.copy_(torch.frombuffer(data, dtype=dtype)[first : first + count])
            planner.commit_tensor(item, target)
        done: Future = Future()
        done.set_result(None)
        return done

    def reset(self, checkpoint_id: object = None) -> None: ...

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:
        return True


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor."""
    return memoryview(tensor.view(torch.uint8).numpy())
