"""Saving models so that loading never runs code from the file."""

from __future__ import annotations

import json
import platform
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
import skops.io
from scipy import sparse

from bagwise import __version__, model_selection, preprocessing
from bagwise.bags import Bags, MultiViewBags
from bagwise.base import Traits
from bagwise.errors import DataError, UnsafeFileError
from bagwise.models._shared.scaling import Scaling
from bagwise.registry import all_estimators
from bagwise.utils.files import replacing
from bagwise.utils.sklearn_compat import search_types

_FACTS = "bagwise.json"


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model (or pipeline, or search) to a file.

    The file is a zip of plain arrays and a description of the objects that hold them, in the format of
    skops, with the versions that wrote it. It appears whole or not at all.

    Parameters
    ----------
    model : estimator
        Made of bagwise and scikit-learn parts.
    path : path
        Where to write; by convention ``*.skops``.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.models import MIMLDummy
    >>> model = MIMLDummy().fit([[[1.0]], [[2.0], [3.0]]], [[1, 0], [1, 1]])
    >>> file = tempfile.mkdtemp() + "/dummy.skops"
    >>> save(model, file)
    >>> load(file).predict([[[5.0]]])
    array([[1, 0]])
    """
    with replacing(path) as temporary:
        try:
            skops.io.dump(model, temporary)
        except Exception as error:
            raise DataError(f"cannot save {type(model).__name__}: {error}") from None
        _refuse_foreign(temporary, path)  # what cannot be loaded again must not be written
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.writestr(_FACTS, json.dumps({"model": type(model).__name__, "versions": _versions()}))


def load(path: str | PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    Nothing in the file is executed. A file that holds any type beside those of bagwise and the numeric
    types and estimators that skops vouches for is refused by name.

    Raises
    ------
    UnsafeFileError
        If the file holds a foreign type.
    DataError
        If it is not a model file, or is damaged.
    """
    _refuse_foreign(path, path)
    try:
        return skops.io.load(Path(path), trusted=sorted(_our_types()))
    except Exception as error:
        written_by = model_facts(path).get("versions", {})
        raise DataError(
            f"cannot be loaded (written by {written_by or 'unknown versions'}): {error}", path=path
        ) from None


def model_facts(path: str | PathLike[str]) -> dict[str, Any]:
    """Read what a model file says about itself: the class and the versions that wrote it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(_FACTS)) if _FACTS in archive.namelist() else {}
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise DataError(f"not a model file ({error})", path=path) from None


def _refuse_foreign(stored: str | PathLike[str], shown: str | PathLike[str]) -> None:
    model_facts(stored)  # a clear error for what is no model file at all
    try:
        foreign = set(skops.io.get_untrusted_types(file=Path(stored))) - _our_types()
    except Exception as error:
        raise DataError(f"not a model file of bagwise ({error})", path=shown) from None
    if foreign:
        raise UnsafeFileError(f"{shown}: holds foreign types, refused: {', '.join(sorted(foreign))}")


def _our_types() -> set[str]:
    """Names of the classes that a model file may bring to life."""
    classes: list[type] = [cls for _, cls in all_estimators()]
    classes += [getattr(preprocessing, name) for name in preprocessing.__all__]
    classes += [Bags, MultiViewBags, Traits, Scaling, sparse.csr_array, sparse.csr_matrix]
    classes += [getattr(model_selection, name) for name in model_selection.__all__]
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in classes if isinstance(cls, type)}
    return names | search_types()


def _versions() -> dict[str, str]:
    return {
        "bagwise": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "scikit-learn": sklearn.__version__,
        "scipy": scipy.__version__,
        "skops": skops.__version__,
    }
