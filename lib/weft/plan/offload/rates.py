"""How fast the slow memory has to be: ZeRO-Infinity's efficiency, and a trillion."""

from dataclasses import dataclass

from weft.plan.arguments import chosen, positive, sizes
from weft.plan.memory import MODELS, bandwidth_for, efficiency, infinity
from weft.plan.shape import ModelShape

FLOWS = ("weights", "optimizer", "activations")
V100_REACHES = 70e12  # FLOP/s that a V100 reaches without waiting, Rajbhandari et al. 2021, 4.1


def share_left(shape: ModelShape, batch: int, flow: str, bandwidth: float, peak: float) -> float:
    """The share of `peak` that is left if one flow alone has to be waited for.

    `flow` is "weights" (with gradients), "optimizer" or "activations"; `bandwidth`
    is what all the devices that work on the `batch` sequences have together, and
    `peak` their FLOP/s together; or both of one device, and the batch of one.

    >>> f"{share_left(MODELS['1.01T'], 1, 'weights', 70e9, V100_REACHES):.1%}"
    '50.6%'
    """
    return efficiency(_intensity(shape, batch, flow), bandwidth, peak)


def _intensity(shape: ModelShape, batch: int, flow: str) -> float:
    return infinity(shape, batch).intensities[chosen("flow", flow, FLOWS)]


@dataclass(frozen=True)
class Trillion:
    """What a step of a large model takes on many devices; bytes, seconds, bytes per second.

    `states` are those of the whole model, `each` those of one device; `checkpoints` the
    activations that are kept, of one device. `compute` is how long a device computes if it reaches
    its peak, and `needs` the bandwidth of each flow of one device that leaves `share` of it.
    """

    params: int
    states: int
    each: float
    checkpoints: float
    compute: float
    share: float
    needs: dict[str, float]


def trillion(
    devices: int = 512,
    batch: int = 2,
    peak: float = V100_REACHES,
    share: float = 0.9,
    model: str = "1.01T",
) -> Trillion:
    """A trillion parameters on many devices, each with `batch` sequences.

    Every device gathers all weights for its own batch: their bandwidth is that of
    the network, for each device, and the slow memory behind it has to bring only a
    device's share of them. The optimizer's states are dealt out, so all devices
    together have the time of a step for them. Rajbhandari et al. 2021, sections 3 and 4.

    >>> needs = trillion(batch=2).needs
    >>> f"{needs['optimizer'] * 512 / 1e12:.2f} TB/s"
    '1.23 TB/s'
    """
    devices, batch = sizes(devices=devices, batch=batch)
    (peak,) = positive(peak=peak)
    shape = MODELS[chosen("model", model, MODELS)]
    one, all_of_them = infinity(shape, batch), infinity(shape, batch * devices)
    needs = {flow: bandwidth_for(one.intensities[flow], share, peak) for flow in FLOWS}
    whole = all_of_them.intensities["optimizer"]
    needs["optimizer"] = bandwidth_for(whole, share, peak)  # of all devices, for all of them
    return Trillion(
        params=one.params,
        states=one.model_states,
        each=one.model_states / devices,
        checkpoints=one.checkpoints,
        compute=one.flops / peak,
        share=share,
        needs=needs,
    )
