"""Attention over a sequence that lies over ranks: keys and values travel, parts are merged."""

from weft.run.ring.attention import attention
from weft.run.ring.decode import decode
from weft.run.ring.share import shard, unshard

__all__ = ["attention", "decode", "shard", "unshard"]
