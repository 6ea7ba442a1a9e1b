"""Raw files as a stream of pieces of one data set: for more files than the memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.base.blocks import evenly
from bagwise.errors import DataError
from bagwise.media.base import ToBags
from bagwise.media.gathering import begin, check_strictly, learn, none_readable, read_for
from bagwise.media.labels import instance_labels
from bagwise.media.parts import NamedPart, Source, Unreadable
from bagwise.media.recipe import Paths, recipe_of

__all__ = ["Pieces"]

FILES = 64  # read for one piece
MOST_LEARNED = 1000  # files that a vocabulary, say, is learned from


class Pieces:
    """Bags of raw files, some files at a time, with labels and recipe; see `bagwise.media.gather`.

    Where something is learned (a vocabulary), it is learned from up to `MOST_LEARNED` files, evenly spaced.
    What `gather` does not take is as in `bagwise.media.gathering.collect`.

    Attributes
    ----------
    recipe : dict
        How the bags are made.
    label_names : tuple of str
        All labels; empty without labels.
    said, unreadable, without_labels, without_files, empty : list
        As in `Gathered`; complete when all pieces are through.
    """

    def __init__(
        self,
        folders: Paths,
        labels: str | PathLike[str] | None = None,
        *,
        strict: bool = False,
        options: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
        step: Callable[..., None] | None = None,
        **how: Any,
    ) -> None:
        self.found, self.maker = begin(folders, labels, **how)
        self.labels, self.strict, self._step = labels, strict, step
        self.said = [self.found.said]
        say(self.found.said)
        self.unreadable: list[Unreadable] = []
        self.without_labels: list[str] = []
        self.without_files: list[str] = []
        self.empty: list[str] = []
        files = self.found.files
        self._runs = [files[first : first + FILES] for first in range(0, len(files), FILES)]
        learns = self.maker._learns()
        to_learn = [files[k] for k in evenly(len(files), MOST_LEARNED)] if learns else []
        # where a file may hold several bags, all files are read for the names of the bags alone
        self._read_for_names = labels is not None and type(self.maker)._parts is not ToBags._parts
        self._total = len(files) * (1 + self._read_for_names) + len(to_learn)  # readings in all
        if learns:
            self._learn(to_learn, say)
        else:
            self._take_width()
        self.recipe = recipe_of(self.maker)
        self.label_names: tuple[str, ...] = ()
        if labels is not None:
            self._read_labels(folders, options, say)

    def _parts(self, files: list[Source], what: str = "") -> tuple[list[NamedPart], list[Unreadable]]:
        """Parts of some files, and those that gave none; the bar is told of each, and what it is read for."""
        step, total = self._step, self._total
        told = None if step is None else lambda steps, name: step(steps, f"{what}{name}", total)
        return self.maker.read(files, step=told, strict=self.strict)

    def _learn(self, some: list[Source], say: Callable[[str], None]) -> None:
        """Learn what is to be learned, from some files."""
        if len(some) < len(self.found.files):
            say(f"learning from {len(some)} of {len(self.found.files)} files, evenly spaced")
        named, unreadable = self._parts(some, "learning: ")
        if not named:
            raise none_readable(self.found, unreadable)
        learn(self.maker, named)

    def _take_width(self) -> None:
        """The number of features, from the first file that holds instances."""
        unreadable: list[Unreadable] = []
        for file in self.found.files:
            named, bad = self.maker.read([file], strict=self.strict)
            unreadable += bad
            if any(one.part.X.shape[0] for one in named):
                self.maker.fit_parts(named)
                return
        if unreadable:
            raise none_readable(self.found, unreadable)
        raise DataError(f"nothing was found in any of the {len(self.found.files)} {self.found.medium} files")

    def _read_labels(self, folders: Paths, options: Any, say: Callable[[str], None]) -> None:
        names = [] if self._read_for_names else [file.name for file in self.found.files]
        failed: list[str] = []
        for some in self._runs if self._read_for_names else ():
            named, unreadable = self._parts(some, "names: ")
            names += [one.name for one in named]
            failed += [file.path for file in unreadable]
        self._known = read_for(self.labels, [*names, *failed], self.found.medium, folders, options)
        if self.strict:
            check_strictly(self._known.files_without, self._known, self.labels)
        if not self._known.label_names:
            raise DataError("there is no label in it, for any of the files", path=self.labels)
        self.said.append(self._known.said)
        say(self._known.said)
        self.label_names = tuple(self._known.label_names)
        self.without_files = list(self._known.unknown_files)
        self._spans: dict[str, list[Any]] = {}
        for span in self._known.spans:
            self._spans.setdefault(span.file, []).append(span)

    # ------------------------------------------------------------------ pieces

    def __iter__(self) -> Iterator[Dataset]:
        n_pieces = 0
        self.unreadable, self.empty = [], []
        for some in self._runs:
            named, unreadable = self._parts(some)
            self.unreadable += unreadable
            piece = self._piece(named) if named else None
            if piece is not None:
                self.empty += [str(i) for i in piece.bags.bag_ids[piece.bags.sizes == 0]]
                n_pieces += 1
                yield piece
        if self.labels is None:
            return
        failed = {file.path for file in self.unreadable}
        self.without_labels = [name for name in self._known.files_without if name not in failed]
        if not n_pieces:
            raise DataError("has no labels for any of the files that could be read", path=self.labels)

    def _piece(self, named: list[NamedPart]) -> Dataset | None:
        """Bags of some files that the labels speak of, with them; None if there are none."""
        if self.labels is None:
            return Dataset(self.maker.bags_of(named), recipe=self.recipe)
        named = [one for one in named if one.name in self._known.bag_labels]
        if not named:
            return None
        bags: Bags = self.maker.bags_of(named)
        ids = [str(name) for name in bags.bag_ids]
        places: np.ndarray | None = None
        if self._spans:
            spans = [span for name in ids for span in self._spans.get(name, ())]
            places = instance_labels(spans, bags, self.label_names)
        sets: Any = [self._known.bag_labels[name] for name in ids]
        return Dataset(bags, sets, self.label_names, instance_Y=places, recipe=self.recipe)
