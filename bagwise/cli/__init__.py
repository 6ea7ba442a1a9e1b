"""The command ``bagwise``, and how it speaks: tables, plain text for pipes, one line for an error."""

# Each file adds its commands to the application: this is the order of the help.
# isort: off
from bagwise.cli.command import AsJson, Command, Debug, app, main
from bagwise.cli.command import print_json, print_table, rich_console, say
from bagwise.cli import showing, gathering, learning, looking  # noqa: F401

__all__ = ["AsJson", "Command", "Debug", "app", "main", "print_json", "print_table", "rich_console", "say"]
