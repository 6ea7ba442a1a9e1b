"""Recordings to bags: decoded in blocks, cut into windows or calls, each described by about 100 numbers."""

from bagwise.media.audio.describe import feature_table
from bagwise.media.audio.exported import ExportedEmbeddings
from bagwise.media.audio.transformer import AudioToBags

__all__ = ["AudioToBags", "ExportedEmbeddings", "feature_table"]
