"""What DeepSpeed's own estimators say that the model states need, to the byte.

They differ from ZeRO's table 1. Stage 3 counts 18 bytes for a parameter where the paper has 16;
stage 2 counts 20, of which 2 are not dealt out. All memory of the host is taken times 1.5, for
buffers; and while a model is built every process holds it in fp32, which is most of the host's
memory where there are many.

deepspeed/runtime/zero/stage_1_and_2.py and stage3.py, estimate_zero2_model_states_mem_needs and
estimate_zero3_model_states_mem_needs. The former once took 4 and 16 bytes instead of 2 and 18
where nothing is offloaded, and DeepSpeed's page on memory still prints what came of that.
"""

from weft.plan.arguments import sizes, total

BUFFERS = 1.5  # times as much of the host as is needed


def deepspeed_zero2(
    total_params: float, gpus_per_node: int = 1, nodes: int = 1, cpu_offload: bool = True
) -> tuple[int, int]:
    """Bytes of the host, for each node, and of each GPU, under stage 2.

    With `cpu_offload` the GPU keeps 16-bit weights alone. The host's share is multiplied by all
    GPUs there are, those of other nodes too: that is how DeepSpeed counts it.

    >>> [round(n / 2**30, 2) for n in deepspeed_zero2(2851e6, 8, 1, cpu_offload=False)]
    [127.45, 11.28]
    """
    params = total("total_params", total_params)
    per_node, nodes = sizes(gpus_per_node=gpus_per_node, nodes=nodes)
    if cpu_offload:
        host, gpu = params * max(4 * per_node * nodes, 16), 2 * params
    else:
        host, gpu = params * 4 * per_node, 2 * params + int(18 * params / (per_node * nodes))
    return int(host * BUFFERS), gpu


def deepspeed_zero3(
    total_params: float,
    largest_layer_params: float,
    gpus_per_node: int = 1,
    nodes: int = 1,
    cpu_offload: bool = True,
    cpu_offload_params: bool = True,
    zero_init: bool = True,
) -> tuple[int, int]:
    """Bytes of the host, for each node, and of each GPU, under stage 3.

    The GPU has room for 4 bytes of each parameter of the largest layer; to that comes its share
    of what is not offloaded. `cpu_offload_params` takes `cpu_offload`, and has
    no effect without it. With `zero_init` the model is dealt out while it is built; without, every
    process of a node holds all of it at first.

    >>> [round(n / 2**30, 2) for n in deepspeed_zero3(2851e6, 32e6, gpus_per_node=8)]
    [71.69, 0.12]
    """
    params = total("total_params", total_params)
    largest = total("largest_layer_params", largest_layer_params)
    per_node, nodes = sizes(gpus_per_node=gpus_per_node, nodes=nodes)
    if largest > params:
        raise ValueError(
            f"largest_layer_params is {largest}, must be at most total_params = {params}"
        )
    gpus, share = per_node * nodes, 1 / nodes
    if cpu_offload:
        kept, rest = (18, 0) if cpu_offload_params else (16, 2)
        if zero_init:
            host = params * kept * share * BUFFERS
        else:
            host = params * max(4 * per_node, kept * share) * BUFFERS
    else:
        rest = 18
        host = (largest if zero_init else params) * 4 * per_node * BUFFERS
    return int(host), 4 * largest + int(rest * params / gpus)
