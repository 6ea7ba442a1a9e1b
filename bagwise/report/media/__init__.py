"""A bag drawn in its medium: spectrogram with calls, picture with heat maps, marked text, map of a slide."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError, quoted
from bagwise.media.labels import Found
from bagwise.media.places import medium_of
from bagwise.report.media import area, sound, words

__all__ = ["draw_bag", "draw_found"]

_DRAWN = {"audio": sound.draw, "text": words.draw, "image": area.draw, "slide": area.draw}


def draw_bag(
    data: Bags | Dataset,
    bag: Any,
    labels: Any = None,
    values: Any = None,
    *,
    names: Any = None,
    source: Any = None,
) -> Any:
    """Draw one bag in its medium, with the label and probability of every part that has one.

    Parameters
    ----------
    data : Bags or Dataset
        Bags with places, as `bagwise.media` makes them.
    bag : str or int
        Id of the bag (the name of its file), or its number.
    labels : int array of shape (n_instances,), optional
        Label index of every instance of ``data``, -1 for none; see ``annotate``. By default the known labels
        of a data set.
    values : array of shape (n_instances, n_labels), optional
        Probabilities, shown beside the names and as heat maps.
    names : sequence of str, optional
        Names of the labels; by default those of the data set.
    source : path, optional
        The original file; without it, or if it cannot be read, the places are drawn alone, and the picture
        says so.

    Returns
    -------
    matplotlib.figure.Figure
        ``figure.savefig("file.png")`` writes it; in a notebook it shows itself.

    Examples
    --------
    >>> places = {"file": ["a.txt"] * 2, "start_char": [0, 14], "end_char": [13, 25]}
    >>> places["text"] = ["A wren sings.", "It is cold."]
    >>> bags = Bags(np.zeros((2, 1)), [0, 2], bag_ids=["a.txt"], instance_info=places)
    >>> figure = draw_bag(bags, "a.txt", [0, -1], names=["bird"])
    >>> figure.texts[0].get_text()
    'a.txt'
    """
    bags = data.bags if isinstance(data, Dataset) else data
    if not isinstance(bags, Bags):
        raise DataError("drawing takes one view; pick one with bags[name]")
    if isinstance(data, Dataset):
        labels = data.instance_Y if labels is None else labels
        names = data.label_names if names is None else names
    i = _number(bags, bag)
    rows = slice(int(bags.offsets[i]), int(bags.offsets[i + 1]))
    n, names = rows.stop - rows.start, list(names or ())
    given = np.full(bags.n_instances, -1) if labels is None else np.asarray(labels)
    if len(given) != bags.n_instances:
        raise DataError(f"{len(given)} labels for {bags.n_instances} instances")
    if len(given) and given.max(initial=-1) >= len(names):
        raise DataError(f"label {given.max()} has no name; give names=[...]")
    shown = np.full((n, len(names)), np.nan) if values is None else np.asarray(values)[rows]
    places = {name: np.asarray(column)[rows] for name, column in bags.instance_info.items()}
    whole = [names[k] for k in sorted(set(given[rows][given[rows] >= 0].tolist()))]
    path = None if source is None else str(source)
    return draw_found(Found(str(bags.bag_ids[i]), places, given[rows], shown, whole, path), names)[0]


def draw_found(found: Found, names: Any) -> tuple[Any, str | None]:
    """Draw what was found in one file; a figure, and what could not be shown as it is."""
    medium = medium_of(found.places)
    if medium not in _DRAWN:
        known = ", ".join(found.places) or "nothing"
        raise DataError(f"only bags with places can be drawn; known of these instances: {known}")
    return _DRAWN[medium](found, list(names))


def _number(bags: Bags, bag: Any) -> int:
    if isinstance(bag, (int, np.integer)) and not isinstance(bag, bool):
        if not -len(bags) <= bag < len(bags):
            raise DataError(f"no bag number {bag}; there are {len(bags)}")
        return int(bag) % len(bags)
    hits = np.flatnonzero(bags.bag_ids == bag)
    if not len(hits):
        raise DataError(f"no bag {quoted(bag)}; the first is {quoted(bags.bag_ids[0])}")
    return int(hits[0])
