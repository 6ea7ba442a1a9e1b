"""Pages of results beside the published figures, for terminals, Markdown, LaTeX, CSV and browsers."""

from __future__ import annotations
