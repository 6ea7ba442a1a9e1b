"""The transformer from raw things to bags: all public methods written once, one private one per medium.

A medium provides ``_part(source)``: one bag from one file (or array, or string), a pure function of the
source and the parameters, so that parts can be made in other processes and kept on disk. Here is the loop
over sources: it names the bags, gathers what cannot be read, and stacks parts into `Bags`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import NotFittedError

from bagwise.bags import Bags
from bagwise.base import BagTransformer, Traits, refuse_non_finite
from bagwise.base.blocks import is_sharded
from bagwise.base.parameters import JOBS, Anything, Choice, Rules, check_parameters
from bagwise.compute.threads import stream
from bagwise.errors import BagwiseError, DataError, in_one_line
from bagwise.media.parts import (
    NAMED,
    NamedPart,
    Part,
    Source,
    Unreadable,
    find_files,
    kept_or_made,
    say_notes,
    stacked,
    stacked_places,
)
from bagwise.utils.files import check_file
from bagwise.utils.version import __version__

__all__ = ["COMMON", "ELSEWHERE", "ToBags"]

ELSEWHERE = ("n_jobs", "cache")  # parameters that no part depends on: where and how fast, not what
# Rules of the two arguments that every medium's constructor ends with: ``n_jobs=None, cache=None``.
COMMON: Rules = {
    "n_jobs": JOBS,
    "cache": (Choice(None), Anything("a folder for parts already made, or None")),
}


class ToBags(BagTransformer, auto_wrap_output_keys=None):  # type: ignore[call-arg]  # bags are no frames
    """Base of the transformers from raw things to bags.

    A subclass sets the class attributes below, stores its constructor's arguments, of which the last two are
    ``n_jobs=None`` and ``cache=None``, and writes ``_part``.

    Attributes
    ----------
    n_features_out_ : int
        Number of features of an instance.
    """

    traits = Traits(sparse=True, empty_bags=True)
    _parameters: ClassVar[Rules] = {}
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

    def _check_settings(self) -> None:
        """Refuse parameters that contradict each other, before any file is opened."""

    # ------------------------------------------------------------------ what users call

    def fit(self, X: Any, y: Any = None) -> Any:
        """Check the parameters and learn what is to be learned (a vocabulary, say) from the sources.

        Parameters
        ----------
        X : sequence of sources, folder, or Bags
            Paths, or things in memory, one per bag; or bags that were gathered before.
        y : ignored

        Returns
        -------
        self
        """
        self._check()
        names = self._names()
        if isinstance(X, Bags) or is_sharded(X):
            if self._learns():
                raise DataError(
                    f"{type(self).__name__} learns from files or things in memory under these parameters; "
                    "these are bags already"
                )
            self.n_features_out_ = X.n_features if names is None else len(names)
            self._checked(X)
        elif self._learns():
            self.fit_parts(self._read(self._sources(X)))
        elif names is None:  # the first source tells how many there are
            self.fit_parts(self._read(self._sources(X)[:1]))
        else:
            self._sources(X)
            self.n_features_out_ = len(names)
        return self

    def transform(self, X: Any) -> Bags:
        """Make bags: one per source, in their order.

        Parameters
        ----------
        X : sequence of sources, folder, or Bags
            As in ``fit``. Bags are given back as they are if their features are those of this transformer.

        Returns
        -------
        Bags
            With the places of all instances as ``instance_info``.

        Raises
        ------
        DataError
            If a file cannot be read; all such files are named, with the reason.
        """
        self._check()
        if isinstance(X, Bags) or is_sharded(X):
            return self._checked(X)
        self._check_learned()
        return self.bags_of(self._read(self._sources(X)))

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> Bags:
        """Do both for the price of reading once."""
        self._check()
        if isinstance(X, Bags) or is_sharded(X):
            return self.fit(X).transform(X)
        named = self._read(self._sources(X))
        self.fit_parts(named)
        return self.bags_of(named)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the features; x0, x1, ... where they have none of their own."""
        names = self._names()
        if names is None:
            self._check_learned()
            names = [f"x{k}" for k in range(self.n_features_out_)]
        return np.array(names, dtype=object)

    # ------------------------------------------------------------------ what gathering calls

    def read(
        self, sources: Sequence[Any], *, step: Callable[..., None] | None = None, strict: bool = False
    ) -> tuple[list[NamedPart], list[Unreadable]]:
        """Named parts of all sources in their order, and the files that gave none.

        Sources are paths, `Source` (a path and a name), or things in memory. ``step(1, name)`` is called
        after each; if ``strict``, the first file that cannot be read is an error.
        """
        settings = None if self.cheap or self.cache is None else self.fingerprint()
        maker = type(self)(**self.get_params(deep=False))  # what was learned need not travel
        is_file = [isinstance(source, Source) or self._is_path(source) for source in sources]
        tasks = (
            (maker, k, os.fspath(source) if is_file[k] else source, settings)
            for k, source in enumerate(sources)
        )
        names = [f"#{k}" for k in range(len(sources))]  # of things in memory
        for k, source in enumerate(sources):
            if is_file[k]:
                names[k] = source.name if isinstance(source, Source) else Path(os.fspath(source)).as_posix()
        found: list[Any] = [None] * len(sources)
        for k, parts in stream(made, tasks, 1 if self.cheap else self.n_jobs):
            found[k] = parts
            if strict and isinstance(parts, str):
                raise DataError(parts, path=names[k])
            if step is not None:
                step(1, names[k])
        named: list[NamedPart] = []
        unreadable: list[Unreadable] = []
        for k, (name, parts) in enumerate(zip(names, found)):
            if isinstance(parts, str):
                unreadable.append(Unreadable(name, parts))
                continue
            file = name if is_file[k] else ""
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
        width = next((p.X.shape[1] for p in parts if p.X.shape[0]), max(p.X.shape[1] for p in parts))
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
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in ELSEWHERE}
        try:
            return json.dumps([type(self).__name__, self.version, __version__, params], sort_keys=True)
        except (TypeError, ValueError):
            return None

    # ------------------------------------------------------------------ inside

    def _check(self) -> None:
        check_parameters(self, self._parameters)
        self._check_settings()

    def _check_learned(self) -> None:
        if self._learns() and not hasattr(self, "n_features_out_"):
            raise NotFittedError(f"this {type(self).__name__} learns from data: call fit before transform")

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if isinstance(state.get("cache"), PathLike):
            state["cache"] = os.fspath(state["cache"])  # model files hold text, no paths
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return not self._learns() or hasattr(self, "n_features_out_")

    def _sources(self, X: Any) -> list[Any]:
        """The sources as a list; a folder stands for the files of this medium inside it."""
        if isinstance(X, Source) or (isinstance(X, (str, PathLike)) and not os.path.isdir(X)):
            raise DataError(
                f"expected a list of sources or a folder, got {str(X)[:80]!r}; write [...] around it"
            )
        if isinstance(X, (str, PathLike)):
            found: list[Any] = list(find_files(X, self.suffixes))
            if not found:
                raise DataError(f"holds no {self.medium} files ({' '.join(self.suffixes)})", path=X)
            return found
        if not isinstance(X, Iterable):
            raise DataError(f"expected a list of sources, got {type(X).__name__}")
        sources = list(X)
        if not sources:
            raise DataError("Found array with 0 sample(s): there is no file or thing to make a bag from")
        return sources

    def _read(self, sources: list[Any]) -> list[NamedPart]:
        """Named parts of all sources; an error that names those that cannot be read."""
        named, unreadable = self.read(sources)
        if unreadable:
            some = "; ".join(f"{path}: {reason}" for path, reason in unreadable[:NAMED])
            more = "" if len(unreadable) <= NAMED else f"; and {len(unreadable) - NAMED} more"
            raise DataError(f"{len(unreadable)} of the sources cannot be read: {some}{more}")
        return named

    def _checked(self, bags: Any) -> Any:
        """Bags (or shards) that were gathered before, if their features are ours."""
        names = self._names()
        width = getattr(self, "n_features_out_", bags.n_features if names is None else len(names))
        if bags.n_features != width:
            raise DataError(
                f"these bags have {bags.n_features} features, {type(self).__name__} gives {width}; "
                "gather them with the same parameters"
            )
        if names is not None and bags.feature_names is not None and list(bags.feature_names) != names:
            k = next(k for k, name in enumerate(names) if bags.feature_names[k] != name)
            raise DataError(
                f"feature {k} of these bags is {bags.feature_names[k]!r}, {type(self).__name__} gives "
                f"{names[k]!r}; gather them with the same parameters"
            )
        return bags

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = self._learns()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.no_validation = True
        return tags


def made(maker: ToBags, k: int, source: Any, settings: str | None) -> tuple[int, Any]:
    """Parts of one source, from the cache if they are there, or the reason why there are none."""
    try:
        path = source if isinstance(source, str) and maker._is_path(source) else None
        if path is not None:
            _check_path(path)
        if path is None or settings is None or maker.cache is None:
            parts = maker._parts(source)
        else:
            parts = kept_or_made(maker.cache, path, settings, lambda: maker._parts(source))
    except DataError as error:
        return k, error.message
    except BagwiseError:
        raise  # a package that is not installed stops all, not this file alone
    except (MemoryError, OverflowError) as error:
        return k, f"asks for more memory than there is ({error})".replace(" ()", "")
    except OSError as error:
        return k, f"cannot be read: {error.strerror or error}"
    except Exception as error:  # decoders fail in their own ways; one file must not end the rest
        return k, f"cannot be decoded ({in_one_line(error, named=True)})"
    if not parts:
        return k, "holds nothing to make a bag from"
    if not maker.may_be_empty:
        for name, part in parts:
            if part.X.shape[0] == 0:
                return k, f"{name}: holds no instances".removeprefix(": ")
    return k, parts


def _check_path(path: str) -> None:
    """Refuse what would wait for somebody to write, and names that no file of ours could hold."""
    if not os.path.isdir(path):
        check_file(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise DataError("its name is not UTF-8; rename it") from None
