"""Documents to bags of sentences, paragraphs or windows of words."""

from bagwise.media.text.decode import strip_html
from bagwise.media.text.transformer import TextToBags

__all__ = ["TextToBags", "strip_html"]
