"""``manifest.json``: what the parts hold together, and the size and checksum of each.

While parts are being written the same facts stand in ``manifest.partial.json``; a folder with that file alone
is one whose writing was stopped, and goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bagwise.errors import DataError
from bagwise.shards.place import Place

__all__ = ["MANIFEST", "PARTIAL", "Manifest", "PartFacts", "part_name"]

MANIFEST, PARTIAL = "manifest.json", "manifest.partial.json"
FORMAT, VERSION = "bagwise shards", 1
_FILE = re.compile(r"part-[0-9]{5,}\.parquet")


def part_name(k: int) -> str:
    """Name of a part's file.

    Examples
    --------
    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{k:05d}.parquet"


@dataclass(frozen=True)
class PartFacts:
    """One part: its file, what is in it, and how to know that it is whole."""

    file: str
    n_bags: int
    n_instances: int  # all views together
    n_empty: int  # bags without instances
    n_bytes: int  # of the file
    sha256: str
    rows: Mapping[str, int]  # instances of each view


@dataclass(frozen=True)
class Manifest:
    """What all parts hold together.

    Parameters
    ----------
    about : mapping
        Name, description, citation, licence of the data.
    label_names : tuple of str
        Labels in order.
    label_counts : tuple of int
        Bags that carry each.
    views : mapping of str to mapping
        For each view ``n_features``, ``dtype``, ``sparse``, ``named_bags``, ``feature_names``, ``info``.
    several_views : bool
        Whether bags have named views.
    has_labels, has_groups, has_instance_labels : bool
        What bags carry.
    splits : tuple of str
        Names of published parts.
    parts : tuple of PartFacts
        The parts in order.
    recipe : mapping, optional
        How the bags were made from raw files; see `bagwise.media.recipe`.
    """

    about: Mapping[str, str]
    label_names: tuple[str, ...]
    label_counts: tuple[int, ...]
    views: Mapping[str, Mapping[str, Any]]
    several_views: bool
    has_labels: bool
    has_groups: bool
    has_instance_labels: bool
    splits: tuple[str, ...]
    parts: tuple[PartFacts, ...]
    recipe: Mapping[str, Any] | None = None

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return sum(part.n_bags for part in self.parts)

    @property
    def n_instances(self) -> int:
        """Number of instances of all views."""
        return sum(part.n_instances for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that a fit can depend on."""
        content = asdict(replace(self, about={}))
        del content["recipe"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def save(self, place: Place, name: str = MANIFEST) -> None:
        """Write the manifest, in one step."""
        content = {"format": FORMAT, "version": VERSION, "n_bags": self.n_bags}
        content |= {"n_instances": self.n_instances} | asdict(self)
        text = json.dumps(content, indent=1)
        place.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    @classmethod
    def read(cls, place: Place, name: str = MANIFEST) -> Manifest:
        """Read a manifest; anything that bagwise has not written so is refused."""
        path = place.join(name)
        try:
            return _checked(json.loads(place.read_bytes(name).decode("utf-8")))
        except FileNotFoundError:
            if not place.exists():
                raise DataError("no such folder", path=place.folder) from None
            stopped = place.exists(PARTIAL)
            advice = "its writing was stopped: run the same command again" if stopped else "not shards"
            raise DataError(f"holds no {name}; {advice}", path=place.folder) from None
        except DataError as error:
            raise error.at(path) from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            raise DataError(f"not a manifest of shards, or damaged ({reason})", path=path) from None


def _checked(content: Any) -> Manifest:
    if content.get("format") != FORMAT:
        raise DataError("not a manifest of bagwise shards")
    if not isinstance(content["version"], int) or content["version"] > VERSION:
        raise DataError(f"written in version {content['version']!r}; this bagwise knows up to {VERSION}")
    parts = tuple(PartFacts(**part) for part in content["parts"])
    for part in parts:
        counts = (part.n_bags, part.n_instances, part.n_empty, part.n_bytes, *part.rows.values())
        if not _FILE.fullmatch(part.file) or not all(isinstance(n, int) and n >= 0 for n in counts):
            raise DataError(f"the part {part.file!r} has a name or a number that cannot be")
    names, counts = tuple(map(str, content["label_names"])), tuple(map(int, content["label_counts"]))
    if len(names) != len(counts) or len(set(names)) != len(names) or not content["views"]:
        raise DataError("label names, counts or views do not agree")
    flags = {key: bool(content[key]) for key in ("several_views", "has_labels", "has_groups")}
    return Manifest(
        about={str(key): str(value) for key, value in content["about"].items()},
        label_names=names,
        label_counts=counts,
        views={str(view): dict(about) for view, about in content["views"].items()},
        has_instance_labels=bool(content["has_instance_labels"]),
        splits=tuple(map(str, content["splits"])),
        parts=parts,
        recipe=content["recipe"] if isinstance(content.get("recipe"), dict) else None,
        **flags,
    )


def is_shards(folder: Any) -> bool:
    """Whether a local folder (or an address) holds shards, complete or not.

    Examples
    --------
    >>> is_shards("/no/such/folder")
    False
    """
    text = str(folder)
    if "://" not in text and not Path(text).is_dir():
        return False
    place = Place(text)
    return place.exists(MANIFEST) or place.exists(PARTIAL)
