"""What a shell offers when the tab key is pressed; see ``bagwise --install-completion``."""

from __future__ import annotations

from bagwise.utils.catalogue import described_estimators


def names_of_models(typed: str) -> list[tuple[str, str]]:
    """Estimators that begin with what was typed, with what they do.

    Examples
    --------
    >>> [name for name, _ in names_of_models("mimld")]
    ['MIMLDummy']
    """
    wanted = typed.lower()
    rows = described_estimators()
    return [(row["name"], row["summary"]) for row in rows if row["name"].lower().startswith(wanted)]


def names_of_data(typed: str) -> list[str]:
    """Data sets that begin with what was typed, and files.

    Examples
    --------
    >>> names_of_data("musk")
    ['musk1', 'musk2']
    """
    from pathlib import Path

    from bagwise.datasets import list_datasets  # some tenths of a second: only when a shell asks

    sets = [row["name"] for row in list_datasets() if row["name"].startswith(typed)]
    place = Path(typed)
    folder, start = (place, "") if typed.endswith("/") else (place.parent, place.name)
    prefix = "" if str(folder) == "." and not typed.startswith("./") else typed[: len(typed) - len(start)]
    try:
        found = sorted(entry for entry in folder.iterdir() if entry.name.startswith(start))
    except OSError:
        return sets
    hidden = start.startswith(".")
    files = [f"{prefix}{e.name}{'/' if e.is_dir() else ''}" for e in found if hidden or e.name[0] != "."]
    return sets + files
