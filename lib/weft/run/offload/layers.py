"""A model larger than memory: parameters, gradients and optimizer of ZeRO-3 in a store.

Memory holds one layer that computes, one that is read, one that is written. Everything else of
the model lies in files: weights, and both moments of Adam.
"""

from collections.abc import Iterable, Iterator

from torch import Tensor, nn

from weft.run.offload.adam import GONE, checked
from weft.run.offload.memory import Memory
from weft.run.offload.store import Store
from weft.run.offload.tiles import TiledLinear
from weft.run.offload.unit import Course, Unit


class Streamed(nn.Module):
    """Layers one after the other, and Adam on them, with all their weights in a store.

        model = Streamed((Block(config) for _ in range(layers)), store, lr=1e-4)
        loss(model(x)).backward()
        model.step()

    Each layer takes a tensor and returns one. Its weights are read before it is used,
    forward and backward, while the layer before them is still computing, and dropped
    after; activations inside it are computed again in backward. Then its gradient goes
    straight into Adam, so `step` has only to make what backward did the store's state;
    a program that is ended before it leaves the last step. Backward comes once a step.
    TiledLinear layers inside a layer come and go tile by tile.

    `layers` may make each layer when it is asked for: it is in the store before the
    next is made. On a store that has these layers already, under this `name`, training
    goes on from there. After a fault `restore()` goes back to the last step, if the
    store has files. The budget must hold one layer's weights and moments, and seven
    times its weights to wait for nothing. Beside it are one layer's gradients and
    activations, and all buffers: one that forward changes, as batch norm does, is
    changed twice. Nothing else may flush the store between backward and `step`.

    Rajbhandari et al. 2021, sections 5.1 and 6.2.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        store: Store | Memory,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        name: str = "layers",
    ):
        super().__init__()
        how = checked(lr, betas, eps, weight_decay)
        how["decoupled_weight_decay"] = decoupled_weight_decay
        self.store, self.name = store, name
        notes = store.notes.get(name)
        if notes is not None and "form" not in notes:
            raise ValueError(f"store holds something else named {name!r}, must hold layers or none")
        self._course = Course(store, how, notes)
        self._units: list[Unit] = []  # all, tiles too
        layers = [self._unit(layer, f"{name}.{i:04d}") for i, layer in enumerate(layers)]
        if not any(unit.form for unit in self._units):
            raise ValueError("layers have no parameters, must have one at least")
        self._layers = _chained(layers)
        self.how = how
        if self._course.notes is None:
            self._commit()
        elif len(self._course.notes["form"]) != len(self._units):
            raise ValueError(f"store holds another model {name!r}, must hold this one or none")

    def _unit(self, layer: nn.Module, name: str) -> Unit:
        """A layer in the store, the tiles in it first."""
        for path, module in list(layer.named_modules()):
            if isinstance(module, TiledLinear):
                tiles = [
                    self._unit(tile, ".".join(filter(None, (name, path, f"tile{j}"))))
                    for j, tile in enumerate(module.tiles)
                ]
                module.tiles = nn.ModuleList(_chained(tiles))
        self._units.append(Unit(layer, name, self._course))
        return self._units[-1]

    def train(self, mode: bool = True) -> "Streamed":
        """As every module's, for the layers too, which are none of its own."""
        for unit in self._units if "_units" in self.__dict__ else ():
            unit.layer.train(mode)
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if not self._course.moved:
            self._course.waiting.clear()  # of a forward that had no backward
        for layer in self._layers:
            x = layer(x)
        return x

    def step(self) -> None:
        """Make the weights that backward left the state of the store."""
        if not self._course.moved:
            return
        if self._course.waiting:
            raise RuntimeError("backward did not reach every layer: restore() goes back")
        self._commit()

    def _commit(self) -> None:
        self.store.notes[self.name] = {
            "form": {unit.name: unit.form for unit in self._units},
            "steps": {unit.name: list(unit.steps) for unit in self._units},
        }
        self.store.flush()
        self._course.moved.clear()

    def restore(self) -> None:
        """Go back to the last step, after a backward or a fault.

        RuntimeError where there is none: plain memory has lost it to a backward that moved weights.
        """
        if isinstance(self.store, Store):
            self.store.rollback()
        elif self._course.moved:
            raise RuntimeError(f"{GONE}: make the layers anew, on another one")
        for unit in self._units:
            unit.steps = list(self.store.notes[self.name]["steps"][unit.name])
        self._course.moved.clear()
        self._course.waiting.clear()

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight, layer by layer, in the memory of the store: copy what is to stay."""
        for unit in self._units:
            for key, weight in unit.weights():
                yield f"{unit.name.removeprefix(self.name + '.')}.{key}", weight


def _chained(units: list[Unit]) -> list[Unit]:
    """Units that are used one after the other know who comes next."""
    for i, unit in enumerate(units):
        unit.siblings, unit.index = units, i
    return units
