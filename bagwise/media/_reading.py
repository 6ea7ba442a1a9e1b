"""From sources to parts to bags: what gathering calls, and the one private method that a medium writes.

``_part(source)`` makes one bag from one file (or array, or string), a pure function of the source and the
parameters, so that parts can be made in other processes and kept in a cache. Here is the loop over sources:
it names the bags, gathers what cannot be read, and stacks parts into `Bags`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bagwise.bags import Bags
from bagwise.base import BagTransformer, refuse_non_finite
from bagwise.compute.threads import stream
from bagwise.errors import DataError
from bagwise.media._making import made
from bagwise.media._part import NamedPart, Part, Unreadable
from bagwise.media._sources import Source
from bagwise.media._stacking import say_notes, stacked, stacked_places, width_of
from bagwise.media.cache import Cache

_ELSEWHERE = ("n_jobs", "cache")  # parameters that no part depends on


class PartReader(BagTransformer, auto_wrap_output_keys=None):  # type: ignore[call-arg]  # bags are no frames
    """Reads sources of one medium; see `ToBags` for what a subclass writes."""

    medium: ClassVar[str] = ""  # name used by --medium and in recipes: audio, image, text, embeddings
    suffixes: ClassVar[tuple[str, ...]] = ()  # in lower case: what makes a file one of this medium
    also: ClassVar[tuple[str, ...]] = ()  # tables that may hold this medium: taken if nothing else is there
    version: ClassVar[int] = 1  # raised when the same file and parameters give other numbers than before
    cheap: ClassVar[bool] = False  # reading costs no more than a cached copy: not cached, one process
    may_be_empty: ClassVar[bool] = False  # whether a file may give a bag without instances

    n_jobs: int | None
    cache: str | PathLike[str] | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(auto_wrap_output_keys=None, **kwargs)

    # ------------------------------------------------------------------ what a medium writes

    def _part(self, source: Any) -> Part:
        """One bag from one source: a path (str), an array, ``(array, rate)`` or a string.

        Anything wrong with a file is a `DataError` of one line; memory is bounded whatever a header claims.
        """
        raise NotImplementedError

    def _parts(self, source: Any) -> list[tuple[str, Part]]:
        """All bags of one source, each with its name inside the file; "" for a file that is one bag.

        Overridden where a file may hold several (rows of a table, groups of an H5 file): bags are then called
        ``file#name``.
        """
        return [("", self._part(source))]

    def _learns(self) -> bool:
        """Whether something is learned from data under the present parameters; then `_learn` is called."""
        return False

    def _learn(self, parts: Sequence[Part]) -> None:
        """Learn from the parts of the training sources; keep it in attributes that end in ``_``."""

    def _finish(self, part: Part) -> Part:
        """A part as features, after learning; what `_part` made is not changed."""
        return part

    def _names(self) -> list[str] | None:
        """Names of the features in the order of the columns; None where they have none."""
        return None

    def _is_path(self, source: Any) -> bool:
        """Whether a source is a file to be read rather than the thing itself."""
        return isinstance(source, (str, PathLike))

    # ------------------------------------------------------------------ what gathering calls

    def read(
        self, sources: Sequence[Any], *, step: Callable[..., None] | None = None, strict: bool = False
    ) -> tuple[list[NamedPart], list[Unreadable]]:
        """Named parts of all sources in their order, and the files that gave none.

        Parameters
        ----------
        sources : sequence
            Paths, `Source` (a path and a name), or things in memory.
        step : callable, optional
            Called after each source, with ``steps=1`` and the name of the source.
        strict : bool, default=False
            Whether to raise at the first file that cannot be read.
        """
        cache = None if self.cheap or self.cache is None else Cache(self.cache)
        maker = type(self)(**self.get_params(deep=False))  # what was learned need not travel
        key = None if cache is None else self.fingerprint()
        tasks = ((maker, k, self._plain(source), cache, key) for k, source in enumerate(sources))
        found: list[Any] = [None] * len(sources)
        for k, parts in stream(made, tasks, 1 if self.cheap else self.n_jobs):
            found[k] = parts
            if strict and isinstance(parts, str):
                raise DataError(parts, path=self._name(sources[k], k))
            if step is not None:
                step(1, self._name(sources[k], k))
        named: list[NamedPart] = []
        unreadable: list[Unreadable] = []
        for k, parts in enumerate(found):
            name = self._name(sources[k], k)
            if isinstance(parts, str):
                unreadable.append(Unreadable(name, parts))
                continue
            file = name if self._is_file(sources[k]) else ""
            named += [NamedPart(f"{name}#{inner}" if inner else name, file, part) for inner, part in parts]
        return named, unreadable

    def fit_parts(self, named: Sequence[NamedPart]) -> None:
        """Learn from parts that were read."""
        if not named:
            raise DataError("there is nothing to learn from: no file gave a bag")
        parts = [one.part for one in named]
        if self._learns():
            self._learn(parts)
        first = next((part for part in parts if part.X.shape[0]), parts[0])
        self.n_features_out_ = int(self._finish(first).X.shape[1])

    def bags_of(self, named: Sequence[NamedPart]) -> Bags:
        """Bags from named parts."""
        if not named:
            raise DataError("Found array with 0 sample(s): there is no file or thing to make a bag from")
        names, parts = [one.name for one in named], [self._finish(one.part) for one in named]
        width = width_of(parts)
        for name, part in zip(names, parts):
            if part.X.shape[0] and part.X.shape[1] != width:
                raise DataError(f"{name} gives {part.X.shape[1]} features, others give {width}")
        if hasattr(self, "n_features_out_") and width and width != self.n_features_out_:
            raise DataError(f"instances have {width} features, in fit they had {self.n_features_out_}")
        width = width or getattr(self, "n_features_out_", 0)
        sizes = [part.X.shape[0] for part in parts]
        files = np.array([one.file for one in named], dtype=object)
        info = {"file": np.repeat(files, sizes), **stacked_places(names, parts)}
        features = self._names()
        bags = Bags(
            stacked([part.X for part in parts], width),
            np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
            bag_ids=[str(name) for name in names] if any(files) else None,
            instance_info=info,
            feature_names=features if features is not None and len(features) == width else None,
        )
        refuse_non_finite(bags)
        say_notes(named)
        return bags

    def fingerprint(self) -> str | None:
        """Text that says all that a part depends on beside its file; None where no text can (a function)."""
        from bagwise.media.cache import settings_text

        params = {k: v for k, v in self.get_params(deep=False).items() if k not in _ELSEWHERE}
        return settings_text(type(self).__name__, self.version, params)

    # ------------------------------------------------------------------ inside

    def _is_file(self, source: Any) -> bool:
        return isinstance(source, Source) or self._is_path(source)

    def _plain(self, source: Any) -> Any:
        """A path as text, anything else as it is."""
        return os.fspath(source) if self._is_file(source) else source

    def _name(self, source: Any, k: int) -> str:
        """What the bag of a source is called; things in memory are numbered."""
        if isinstance(source, Source):
            return source.name
        if self._is_path(source):
            return Path(os.fspath(source)).as_posix()
        return f"#{k}"
