"""The command ``bagwise``."""

from bagwise.cli import comparing, gathering, looking  # noqa: F401  (their commands join the others)
from bagwise.cli.commands import app, main

__all__ = ["app", "main"]
