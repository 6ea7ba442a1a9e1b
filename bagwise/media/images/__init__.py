"""Pictures to bags of cells of a grid or of superpixels."""

from bagwise.media.images.transformer import ImagesToBags

__all__ = ["ImagesToBags"]
