"""The command ``bagwise``."""

from bagwise.cli import comparing  # noqa: F401  (its command joins the others)
from bagwise.cli.commands import app, main

__all__ = ["app", "main"]
