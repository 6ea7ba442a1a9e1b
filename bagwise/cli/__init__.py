"""The command ``bagwise``."""

# Each file adds its commands to the application: this is the order of the help.
# isort: off
from bagwise.cli.app import app, main
from bagwise.cli import showing, gathering, learning, looking, reproducing  # noqa: F401

__all__ = ["app", "main"]
