"""The media by name, and how bags were made from files, as plain values that a data file or a model can keep.

A recipe says the medium, every parameter (also those left at their defaults, which later versions may
change), the version of bagwise, the revision of the description and, where something was learned, what.
A file that holds one is not trusted: names, parameters and shapes are checked before anything is made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bagwise.base.parameters import check_parameters
from bagwise.errors import BagwiseError, DataError, listed
from bagwise.media.base import ELSEWHERE, ToBags
from bagwise.media.parts import Source, find_files
from bagwise.utils.version import __version__

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
_MAJORITY = 10  # a medium with so many times the files of all others together is meant

# Medium: where its transformer is, other words for it, and what the places in it are called.
MEDIA: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "audio": ("bagwise.media.audio", "AudioToBags", ("sound", "recordings", "recording"), "audio"),
    "image": ("bagwise.media.images", "ImagesToBags", ("images", "pictures", "photos", "picture"), "image"),
    "text": ("bagwise.media.text", "TextToBags", ("texts", "documents", "articles"), "text"),
    "embeddings": (
        "bagwise.media.embeddings",
        "EmbeddingsToBags",
        ("embedding", "slides", "slide", "features"),
        "slide",
    ),
}


def medium_named(word: str) -> str:
    """The medium that a word stands for.

    Examples
    --------
    >>> medium_named("Pictures"), medium_named("slides")
    ('image', 'embeddings')
    """
    wanted = word.lower()
    for medium, (_, _, others, _) in MEDIA.items():
        if wanted == medium or wanted in others:
            return medium
    raise BagwiseError(f"no medium is called {word!r}; known are {', '.join(MEDIA)}")


def transformer_class(medium: str) -> type[ToBags]:
    """The transformer of a medium."""
    module, name, _, _ = MEDIA[medium_named(medium)]
    return getattr(import_module(module), name)


def transformers() -> list[type[ToBags]]:
    """The transformers of all media."""
    return [transformer_class(medium) for medium in MEDIA]


def places_of(medium: str) -> str:
    """What `bagwise.media.places` calls the medium."""
    return MEDIA[medium_named(medium)][3]


def make_transformer(medium: str, params: Mapping[str, Any] | None = None, **more: Any) -> ToBags:
    """A transformer by medium, with ``n_jobs`` and ``cache``; an error of a parameter lists the right ones.

    Examples
    --------
    >>> make_transformer("text", {"cut": "paragraphs"})
    TextToBags(cut='paragraphs')
    """
    cls = transformer_class(medium)
    known = [name for name in cls._get_param_names() if name not in ELSEWHERE]
    for name in params or {}:
        if name not in known:
            raise BagwiseError(f"{cls.__name__} has no parameter {name!r}; it has {', '.join(known)}")
    made = cls(**{**(params or {}), **more})
    try:
        made._check()
    except BagwiseError:
        raise
    except ValueError as error:
        raise BagwiseError(str(error)) from None
    return made


def recipe_of(transformer: ToBags) -> dict[str, Any]:
    """The recipe of a transformer (fitted, if it learns), refused where no file can keep a parameter."""
    params = {k: v for k, v in transformer.get_params(deep=False).items() if k not in ELSEWHERE}
    for name, value in params.items():
        try:
            params[name] = json.loads(json.dumps(value, default=_plain))
        except (TypeError, ValueError):
            raise DataError(
                f"{name}={value!r} cannot be kept in a file, so no file could say how these bags were made; "
                "use make_pipeline(transformer, model) in Python instead"
            ) from None
    recipe = {
        "medium": transformer.medium,
        "params": params,
        "version": __version__,
        "revision": transformer.version,
    }
    if hasattr(transformer, "n_features_out_"):
        recipe["n_features"] = int(transformer.n_features_out_)
    if transformer._learns():
        learned = [name for name in vars(transformer) if _is_learned(name) and name != "n_features_out_"]
        recipe["state"] = {name: _stored(getattr(transformer, name)) for name in learned}
    return recipe


def transformer_of(recipe: Mapping[str, Any], **more: Any) -> ToBags:
    """The transformer that a recipe describes, ready to transform; refused if it is of another revision."""
    try:
        medium, params, revision = recipe["medium"], dict(recipe["params"]), recipe["revision"]
        cls = transformer_class(medium)
    except (KeyError, TypeError, ValueError, AttributeError, BagwiseError) as error:
        raise DataError(f"the recipe of these bags is not one that bagwise writes ({error})") from None
    if revision != cls.version:
        raise DataError(
            f"these bags were made by revision {revision} of {cls.__name__} (bagwise "
            f"{recipe.get('version')}), here is revision {cls.version}; gather them anew"
        )
    for name, default in cls().get_params(deep=False).items():
        if isinstance(default, tuple) and isinstance(params.get(name), list):
            params[name] = tuple(params[name])  # JSON has lists alone
    made = make_transformer(medium, params, **more)
    if isinstance(recipe.get("n_features"), int):
        made.n_features_out_ = recipe["n_features"]
    if made._learns():
        state = recipe.get("state")
        if not isinstance(state, dict):
            raise DataError("the recipe of these bags lacks what was learned from their files")
        try:
            for name, value in state.items():
                if not _is_learned(name):
                    raise DataError(f"the recipe of these bags would set {name!r}")
                setattr(made, name, _restored(value))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the recipe of these bags is damaged ({error})") from None
    check_parameters(made, made._parameters)
    return made


def describe(recipe: Mapping[str, Any]) -> str:
    """A recipe in one line: the medium and the parameters that are not at their defaults."""
    params = dict(recipe.get("params") or {})
    try:
        cls = transformer_class(recipe["medium"])
        defaults = json.loads(json.dumps(cls().get_params(deep=False), default=_plain))
        changed = {k: v for k, v in params.items() if defaults.get(k) != v}
        words = ", ".join(f"{k}={v}" for k, v in changed.items()) or "with default parameters"
        return f"{recipe['medium']} by {cls.__name__}, {words}"
    except (KeyError, TypeError, BagwiseError):
        words = ", ".join(f"{k}={v}" for k, v in params.items())
        return f"{recipe.get('medium')}: {words}"


# ---------------------------------------------------------------------- plain values


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, tuple, set)):
        return list(value)
    if isinstance(value, PathLike):
        return str(value)
    raise TypeError(f"{value!r} is no plain value")


def _is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("__")


def _stored(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": value.ravel().tolist(), "dtype": value.dtype.name, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {"mapping": [[str(k), _stored(v)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        return {"words": [str(v) for v in value.tolist()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_stored(v) for v in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise DataError(f"what was learned cannot be kept in a file ({type(value).__name__})")


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        dtype = np.dtype(str(value["dtype"]))
        if dtype.kind not in "biuf":
            raise ValueError(f"an array of {dtype}")
        return np.array(value["array"], dtype=dtype).reshape([int(n) for n in value["shape"]])
    if "mapping" in value:
        return {str(k): _restored(v) for k, v in value["mapping"]}
    if "words" in value:
        return np.array([str(v) for v in value["words"]], dtype=object)
    return [_restored(v) for v in value["list"]]


# ---------------------------------------------------------------------- which medium lies in a folder


class Found(NamedTuple):
    """The files of one medium, how they were recognised, and in one line what lay there."""

    medium: str
    files: list[Source]
    said: str


def recognise(
    folders: Paths, medium: str | type[ToBags] | None = None, *, leave_out: Iterable[str | PathLike[str]] = ()
) -> Found:
    """Find the files of a medium in folders, searched to their depths, or among files.

    By default the medium is what nearly all files are: a notice among recordings does not matter, as many
    texts as recordings do. Files to leave out are none of them, such as the table of labels.
    """
    all_files = find_files(folders, leave_out=leave_out)
    named = [folders] if isinstance(folders, (str, PathLike)) else list(folders)
    where = listed(named, 3)
    if medium is None:
        medium = _by_majority(all_files, where)
    cls = transformer_class(medium) if isinstance(medium, str) else medium
    medium = cls.medium
    files = _with(all_files, cls.suffixes) or _with(all_files, cls.also)
    if not files and not isinstance(folders, (str, PathLike)):  # what was named is taken
        given = {str(path) for path in folders if Path(path).is_file()}
        files = [file for file in all_files if file.path in given]
    if not files:
        raise DataError(
            f"no {medium} files there ({' '.join((*cls.suffixes, *cls.also))}); found {_counted(all_files)}",
            path=where,
        )
    said = f"found {len(files)} {medium} {'file' if len(files) == 1 else 'files'} ({_counted(files)})"
    taken = set(files)
    rest = [file for file in all_files if file not in taken]
    if rest:
        said += f"; passed over {len(rest)} other {'file' if len(rest) == 1 else 'files'} ({_counted(rest)})"
    return Found(medium, files, said)


def _by_majority(files: list[Source], where: str) -> str:
    counts = {cls.medium: len(_with(files, cls.suffixes)) for cls in transformers()}
    counts = {medium: n for medium, n in counts.items() if n}
    if not counts:  # tables may hold texts or embeddings
        kinds = [cls.medium for cls in transformers() if _with(files, cls.also)]
        kinds = _by_looking(files, kinds) if len(kinds) > 1 else kinds
        if len(kinds) == 1:
            return kinds[0]
        advice = f"name it with medium=...: {' or '.join(kinds or MEDIA)}"
        raise DataError(f"cannot tell which medium this is (found {_counted(files)}); {advice}", path=where)
    best = max(counts, key=lambda medium: counts[medium])
    others = sum(counts.values()) - counts[best]
    if others and counts[best] < _MAJORITY * others:
        there = ", ".join(f"{n} {medium} files" for medium, n in counts.items())
        raise DataError(f"holds {there}; say which are meant with medium=...", path=where)
    return best


def _by_looking(files: list[Source], kinds: list[str]) -> list[str]:
    """Which of these media can read the first table that all of them could hold; all if none can."""
    classes = [transformer_class(kind) for kind in kinds]
    common = [file for file in files if all(_with([file], cls.also) for cls in classes)]
    able = []
    for cls in classes:
        try:
            if common and cls()._parts(common[0].path):
                able.append(cls.medium)
        except Exception:  # whatever is wrong with it for this medium
            continue
    return able or kinds


def _with(files: list[Source], suffixes: Sequence[str]) -> list[Source]:
    return [file for file in files if file.name.lower().endswith(tuple(suffixes))] if suffixes else []


def _counted(files: list[Source]) -> str:
    """Suffixes and how many files have them, such as "90 .wav, 10 .flac"."""
    if not files:
        return "no files at all"
    counts = Counter(Path(file.name).suffix.lower() or "without suffix" for file in files).most_common()
    return listed((f"{n} {suffix}" for suffix, n in counts), 5, also="other kinds")
