"""The files of the page, read once from the package."""

from __future__ import annotations

from importlib.resources import files

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def static_files() -> dict[str, bytes]:
    """The files of the page by name; nothing beside them can be asked for."""
    folder = files("bagwise.web") / "static"
    found = {}
    for item in folder.iterdir():
        if item.is_file() and "." + item.name.rpartition(".")[2] in TYPES:
            found[item.name] = item.read_bytes()
    return found
