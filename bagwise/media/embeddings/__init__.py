"""Features made elsewhere to bags: slides, folders of arrays, tables."""

from bagwise.media.embeddings.transformer import EmbeddingsToBags

__all__ = ["EmbeddingsToBags"]
