"""The command ``bagwise``."""

from bagwise.cli.commands import app, main

__all__ = ["app", "main"]
