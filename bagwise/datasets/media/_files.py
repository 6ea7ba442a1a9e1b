"""Folders of files with known truth, and the table of labels beside them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from bagwise.utils.files import replacing

File = str | PathLike[str]


class Truth(NamedTuple):
    """What occurs where.

    Parameters
    ----------
    labels : dict of str to list of str
        Labels of each file, by its name in the folder.
    spans : list of dict
        One per call, picture, sentence or tile: ``file``, ``label``, and its place in the columns of
        `bagwise.media.places`.
    """

    labels: dict[str, list[str]]
    spans: list[dict[str, Any]]


def filled(
    folder: File,
    stem: str,
    suffix: str,
    n_files: int,
    make: Callable[[Path], list[dict[str, Any]]],
    labels: File | None,
) -> Truth:
    """Files made one by one, each with the labels of what it holds."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    truth = Truth({}, [])
    for k in range(n_files):
        name = f"{stem}_{k:03d}{suffix}"
        spans = make(root / name)
        truth.labels[name] = sorted({span["label"] for span in spans})
        truth.spans.extend({"file": name, **span} for span in spans)
    if labels is not None:
        write_labels(labels, truth.labels)
    return truth


def write_labels(path: File, labels: Mapping[str, Sequence[str]]) -> None:
    """Write a table ``file,labels`` with ``;`` between labels."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "labels"])
        writer.writerows([name, ";".join(found)] for name, found in labels.items())
