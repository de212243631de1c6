"""Several cuts at once: layouts, clusters, and what a step of training costs under each."""

from weft.plan.composing.cluster import (
    CLUSTERS,
    SOFTWARE,
    Cluster,
    Software,
)
from weft.plan.composing.command import (
    words,
)
from weft.plan.composing.compare import (
    why,
)
from weft.plan.composing.deepspeed import (
    from_deepspeed,
    to_deepspeed,
)
from weft.plan.composing.estimate import (
    Estimate,
    estimate,
)
from weft.plan.composing.judge import (
    improved,
    unhidden,
    waiting,
)
from weft.plan.composing.layout import (
    Layout,
)
from weft.plan.composing.megatron import (
    from_megatron,
    read_megatron,
    to_megatron,
)
from weft.plan.composing.published import (
    TESTS,
    Compared,
    compared,
    errors,
)
from weft.plan.composing.ranks import (
    axes,
    coordinates,
    groups,
)
from weft.plan.composing.search import (
    search,
)
from weft.plan.composing.systems import (
    SYSTEMS,
    search_for,
    text_for,
)
from weft.plan.composing.torchtitan import (
    from_torchtitan,
    to_torchtitan,
    to_torchtitan_function,
)
from weft.plan.composing.usual import (
    USUAL,
    cluster_of,
)

__all__ = [
    "CLUSTERS",
    "SOFTWARE",
    "SYSTEMS",
    "TESTS",
    "USUAL",
    "Cluster",
    "Compared",
    "Estimate",
    "Layout",
    "Software",
    "axes",
    "cluster_of",
    "compared",
    "coordinates",
    "errors",
    "estimate",
    "from_deepspeed",
    "from_megatron",
    "from_torchtitan",
    "groups",
    "improved",
    "read_megatron",
    "search",
    "search_for",
    "text_for",
    "to_deepspeed",
    "to_megatron",
    "to_torchtitan",
    "to_torchtitan_function",
    "unhidden",
    "waiting",
    "why",
    "words",
]
