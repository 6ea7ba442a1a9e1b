"""Saving models so that loading never runs code from the file."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import zipfile
from os import PathLike
from typing import Any, BinaryIO

import numpy as np
import scipy
import sklearn

from bagwise.errors import DataError, UnsafeFileError, in_one_line, warn
from bagwise.persistence._archive import (
    FACTS,
    SCHEMA,
    check_sizes,
    copied,
    fingerprint,
    open_file,
    read_facts,
)
from bagwise.persistence._places import STATE, renamed, skops, trusted
from bagwise.persistence._structures import check_answers, check_parts
from bagwise.utils.files import replacing
from bagwise.utils.version import __version__

__all__ = ["load", "model_facts", "save"]

# Classes without a public place of their own, found here by the names that files use.
globals().update(STATE)


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model (or pipeline, or search) to a file.

    The file is a zip of plain arrays and a description of the objects that hold them, in the format of
    skops, with the versions that wrote it and a fingerprint. Classes are named by their public place. It
    appears whole or not at all.

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
        raw = temporary.with_name("raw.skops")
        try:
            skops.io.dump(model, raw)
        except Exception as error:
            raise DataError(f"cannot save {type(model).__name__}: {error}") from None
        with zipfile.ZipFile(raw) as source, zipfile.ZipFile(temporary, "w") as archive:
            schema = json.loads(source.read(SCHEMA))
            renamed(schema)
            copied(source, archive, schema)
        raw.unlink()
        with open_file(temporary) as file:
            try:
                _refuse_foreign(file)  # what cannot be loaded again must not be written
            except UnsafeFileError as error:
                raise UnsafeFileError(f"cannot save {type(model).__name__}: it {error}") from None
        with zipfile.ZipFile(temporary, "a") as archive:
            facts = {"model": type(model).__name__, "versions": _versions(), "sha256": fingerprint(archive)}
            archive.writestr(FACTS, json.dumps(facts))


def load(path: str | PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Read a model that `save` wrote.

    Nothing in the file is executed. A file that holds any type beside those of bagwise and the numeric types
    and estimators of scikit-learn is refused by name; so is one that would take far more memory than its size
    explains, whose contents are not those that were saved, or whose parts do not fit together.

    Parameters
    ----------
    path : path
        The file.
    max_bytes : int, optional
        Memory that its parts may take; by default four times the size of the file, at least 256 MiB.

    Warns
    -----
    UserWarning
        If another version of scikit-learn or bagwise wrote the file.

    Raises
    ------
    UnsafeFileError
        If the file holds a foreign type.
    DataError
        If it is not a model file, or is damaged.
    """
    with open_file(path) as file:
        try:
            facts, model = _read(file, max_bytes)
            check_parts(model)
            check_answers(model)
        except DataError as error:
            raise error.at(path) from None
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{path}: {error}") from None
    _warn_of_versions(facts.get("versions", {}), path)
    return model


def model_facts(path: str | PathLike[str]) -> dict[str, Any]:
    """Read what a model file says about itself: the class and the versions that wrote it."""
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return read_facts(archive)
        except DataError as error:
            raise error.at(path) from None
        except Exception as error:  # a damaged archive fails in many ways
            raise DataError(f"not a model file ({error})", path=path) from None


def _read(file: BinaryIO, max_bytes: int | None) -> tuple[dict[str, Any], Any]:
    """Facts and model; every check that needs nothing brought to life comes first."""
    try:
        with zipfile.ZipFile(file) as archive:
            check_sizes(archive, os.fstat(file.fileno()).st_size, max_bytes)
            facts = read_facts(archive)
            if "sha256" in facts and facts["sha256"] != fingerprint(archive):
                raise DataError(
                    "its contents are not those that were saved; fit the model anew or find a copy"
                )
            content = _by_public_names(archive) or file
    except DataError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        raise DataError(f"not a model file, or damaged ({in_one_line(error, 300, named=True)})") from None
    names = _refuse_foreign(content)
    try:
        # the names in this file, not all that may be in one: skops goes through them for every word of a list
        return facts, skops.io.load(content, trusted=names)
    except Exception as error:
        written_by = facts.get("versions") or "unknown versions"
        raise DataError(
            f"cannot be loaded (written by {written_by}): {in_one_line(error, 300, named=True)}"
        ) from None


def _by_public_names(archive: zipfile.ZipFile) -> BinaryIO | None:
    """A copy of the archive that names classes by their public places; None where it does so already."""
    schema = json.loads(archive.read(SCHEMA))
    if not renamed(schema):
        return None
    content = tempfile.TemporaryFile()  # noqa: SIM115  # goes away with the last reference
    with zipfile.ZipFile(content, "w") as copy:
        copied(archive, copy, schema)
    return content


def _refuse_foreign(content: BinaryIO) -> list[str]:
    """Names in the file that skops does not trust by itself; all of them are ours to trust."""
    try:
        names = skops.io.get_untrusted_types(file=content)  # type: ignore[arg-type]
    except Exception as error:
        raise DataError(f"not a model file of bagwise ({in_one_line(error, 300, named=True)})") from None
    if foreign := set(names) - trusted():
        raise UnsafeFileError(f"holds foreign types, refused: {', '.join(sorted(foreign))}")
    return names


def _warn_of_versions(written: dict[str, str], path: str | PathLike[str]) -> None:
    """Say which packages are not those that wrote the file, of the two that its meaning hangs on."""
    here = _versions()
    other = [
        f"{name} {written[name]} (here {here[name]})"
        for name in ("bagwise", "scikit-learn")
        if name in written and written[name] != here[name]
    ]
    if other:
        warn(
            f"{path} was written by {' and '.join(other)}; its answers may differ: fit it anew if in doubt",
        )


def _versions() -> dict[str, str]:
    return {
        "bagwise": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "scikit-learn": sklearn.__version__,
        "scipy": scipy.__version__,
        "skops": skops.__version__,
    }
