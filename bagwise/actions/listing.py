"""What there is: estimators, data sets and file formats, without importing any model."""

from __future__ import annotations

from typing import Any

from bagwise.datasets import list_datasets
from bagwise.io import formats
from bagwise.utils.catalogue import described_estimators


def list_all(name: str = "") -> dict[str, Any]:
    """List estimators with their traits, data sets, and file formats, all or those with ``name`` in theirs.

    Examples
    --------
    >>> [row["name"] for row in list_all("dummy")["estimators"]]
    ['MIMLDummy']
    """
    files = [{**f._asdict(), "description": f.description.rstrip(".")} for f in formats()]
    found = {"estimators": described_estimators(), "datasets": list_datasets(), "formats": files}
    wanted = name.lower()
    return {kind: [row for row in rows if wanted in row["name"].lower()] for kind, rows in found.items()}
