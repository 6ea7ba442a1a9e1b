"""Bags on disk in Parquet parts with a manifest, for data that outgrow the memory."""

from bagwise.shards.foreign import convert_parquet
from bagwise.shards.manifest import is_shards
from bagwise.shards.sharded import ShardedBags
from bagwise.shards.writer import PART_BYTES, ShardWriter, write_shards

__all__ = ["PART_BYTES", "ShardWriter", "ShardedBags", "convert_parquet", "is_shards", "write_shards"]
