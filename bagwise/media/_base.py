"""The transformer from raw things to bags: all public methods written once, one private one per medium.

A medium provides ``_part(source)``, see `bagwise.media._reading`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from bagwise.bags import Bags
from bagwise.base import Traits
from bagwise.base.blocks import is_sharded
from bagwise.base.parameters import JOBS, Anything, Choice, Rules, check_parameters
from bagwise.errors import DataError
from bagwise.media._part import NamedPart, Part, Unreadable
from bagwise.media._reading import PartReader
from bagwise.media._sources import Source, find_files
from bagwise.media._stacking import NAMED

__all__ = ["COMMON", "Part", "ToBags", "Unreadable"]

# Rules of the two arguments that every medium's constructor ends with: ``n_jobs=None, cache=None``.
COMMON: Rules = {
    "n_jobs": JOBS,
    "cache": (Choice(None), Anything("a folder for parts already made, or None")),
}


class ToBags(PartReader):
    """Base of the transformers from raw things to bags.

    A subclass sets the class attributes of `PartReader`, stores its constructor's arguments, of which the
    last two are ``n_jobs=None`` and ``cache=None``, and writes ``_part``.

    Attributes
    ----------
    n_features_out_ : int
        Number of features of an instance.
    """

    traits = Traits(sparse=True, empty_bags=True)
    _parameters: ClassVar[Rules] = {}

    def _check_settings(self) -> None:
        """Refuse parameters that contradict each other, before any file is opened."""

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
        if isinstance(X, Bags) or is_sharded(X):
            self._fit_bags(X)
        elif self._learns():
            self.fit_parts(self._read(X))
        else:
            self._remember(self._sources(X))
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
        return self.bags_of(self._read(X))

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> Bags:
        """Do both for the price of reading once."""
        self._check()
        if isinstance(X, Bags) or is_sharded(X):
            return self.fit(X).transform(X)
        named = self._read(X)
        self.fit_parts(named)
        return self.bags_of(named)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the features; x0, x1, ... where they have none of their own."""
        names = self._names()
        if names is None:
            self._check_learned()
            names = [f"x{k}" for k in range(self.n_features_out_)]
        return np.array(names, dtype=object)

    # ------------------------------------------------------------------ inside

    def _check(self) -> None:
        check_parameters(self, self._parameters)
        self._check_settings()

    def _check_learned(self) -> None:
        if self._learns() and not hasattr(self, "n_features_out_"):
            from sklearn.exceptions import NotFittedError

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

    def _read(self, X: Any) -> list[NamedPart]:
        named, unreadable = self.read(self._sources(X))
        if unreadable:
            some = "; ".join(f"{path}: {reason}" for path, reason in unreadable[:NAMED])
            more = "" if len(unreadable) <= NAMED else f"; and {len(unreadable) - NAMED} more"
            raise DataError(f"{len(unreadable)} of the sources cannot be read: {some}{more}")
        return named

    def _remember(self, sources: list[Any]) -> None:
        """The number of features where nothing is learned: that of the names, or of the first source."""
        names = self._names()
        if names is None:
            self.fit_parts(self._read(sources[:1]))
        else:
            self.n_features_out_ = len(names)

    def _fit_bags(self, bags: Any) -> None:
        if self._learns():
            raise DataError(
                f"{type(self).__name__} learns from files or things in memory under these parameters; "
                "these are bags already"
            )
        names = self._names()
        self.n_features_out_ = bags.n_features if names is None else len(names)
        self._checked(bags)

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
