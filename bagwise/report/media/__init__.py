"""A bag drawn in its medium: spectrogram with calls, picture with heat maps, marked text, map of a slide."""

from bagwise.report.media.draw import draw_bag, draw_found

__all__ = ["draw_bag", "draw_found"]
