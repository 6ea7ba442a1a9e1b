"""Containers as pandas frames, in the layout of our long CSV, and as HTML in a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from bagwise.errors import OptionalDependencyError

MOST_FLAGS = 1000  # labels that are ever written as columns of their own
_SEPARATOR = ";"  # between the names of labels in one cell
_ROWS = 5  # bags shown in a notebook
_LABELS = 12  # labels shown in a notebook


def pandas() -> Any:
    """The pandas module, which bagwise does not need elsewhere."""
    try:
        import pandas
    except ImportError:
        raise OptionalDependencyError("frames need pandas; install it with: pip install pandas") from None
    return pandas


def feature_titles(bags: Any) -> list[str]:
    """Names of the features, f1, f2, ... where they have none."""
    return list(bags.feature_names or (f"f{k}" for k in range(1, bags.n_features + 1)))


def bags_frame(bags: Any, beside: dict[str, Any] | None = None) -> Any:
    """One row per instance; ``beside`` are further columns to stand after the bag id."""
    pd = pandas()
    front: dict[str, Any] = {"bag_id": bags.bag_ids[bags.index], **(beside or {})}
    back = {
        f"info:{name}": values if values.ndim == 1 else list(values)
        for name, values in bags.instance_info.items()
    }
    titles = feature_titles(bags)
    make = pd.DataFrame.sparse.from_spmatrix if bags.is_sparse else pd.DataFrame
    parts = [
        pd.DataFrame(front),
        make(bags.X, columns=titles),
        pd.DataFrame(back, index=range(bags.n_instances)),
    ]
    return pd.concat([part for part in parts if part.shape[1]], axis=1)


def bag_columns(dataset: Any) -> dict[str, Any]:
    """What belongs to bags, a value each, under the names of a long table: labels, group, splits."""
    columns: dict[str, Any] = {}
    names = dataset.label_names
    if dataset.has_labels:
        occurring = [name for name, n in zip(names, dataset.label_counts) if n]
        plain = all(name and _SEPARATOR not in name and name == name.strip() for name in names)
        # a reader of one column of names finds those that occur, sorted
        if (plain and list(names) == sorted(occurring)) or len(names) > MOST_FLAGS:
            columns["labels"] = [_SEPARATOR.join(names) for names in dataset.label_sets]
        else:
            dense = dataset.Y
            columns |= {f"label:{name}": dense[:, k] for k, name in enumerate(names)}
    if dataset.groups is not None:
        columns["group"] = dataset.groups
    if dataset.splits:
        parts: list[list[str]] = [[] for _ in range(len(dataset))]
        for part, which in dataset.splits.items():
            for k in np.unique(which):
                parts[k].append(part)
        columns["splits"] = list(map(_SEPARATOR.join, parts))
    return columns


# ---------------------------------------------------------------------- notebooks


def bags_html(bags: Any) -> str:
    """A table of facts and the first bags."""
    sizes = bags.sizes
    spread = f" ({sizes.min()} to {sizes.max()} per bag)" if len(sizes) else ""
    facts = [
        ("bags", f"{len(bags):,}"),
        ("instances", f"{bags.n_instances:,}{spread}"),
        ("features", f"{bags.n_features:,} ({'sparse' if bags.is_sparse else 'dense'} {bags.dtype})"),
    ]
    if bags.instance_info:
        facts.append(("facts about instances", ", ".join(bags.instance_info)))
    head = ["bag", "instances", *feature_titles(bags)[:_ROWS]]
    rows = []
    for k in range(min(len(bags), _ROWS)):
        first = bags[k][:1]
        first = first.toarray() if bags.is_sparse else first
        values = [f"{v:.4g}" for v in first.ravel()[:_ROWS]]
        rows.append([bags.bag_ids[k], sizes[k], *values, *[""] * (len(head) - 2 - len(values))])
    note = "features are those of the first instance of each bag"
    return f"<div><b>Bags</b>{pairs(facts)}{table(head, rows)}<small>{note}</small></div>"


def dataset_html(data: Any) -> str:
    """Facts, labels with their numbers of bags, and the bags."""
    facts = [
        (key, getattr(data, key))
        for key in ("name", "description", "citation", "licence")
        if getattr(data, key)
    ]
    facts.append(("labels", f"{len(data.label_names):,}" if data.has_labels else "none"))
    if data.has_labels:
        facts.append(("labels per bag", f"{data.cardinality:.2f}"))
    facts.append(("instance labels", "none" if data.instance_Y is None else "known"))
    if data.splits:
        facts.append(("parts", ", ".join(f"{k} ({len(v):,})" for k, v in data.splits.items())))
    if data.roles is not None:
        facts.append(("columns", str(data.roles)))
    counts = data.label_counts
    most = np.argsort(-counts, kind="stable")[:_LABELS]
    rows = [[data.label_names[k], f"{counts[k]:,}"] for k in most]
    labels = table(["label", "bags"], rows) if rows else ""
    return f"<div><b>Dataset</b>{pairs(facts)}{labels}{data.bags._repr_html_()}</div>"


def pairs(items: list[tuple[str, str]]) -> str:
    """A table of names and values."""
    return table([], [list(item) for item in items])


def table(head: list[str], rows: list[list[Any]]) -> str:
    """An HTML table; every cell is escaped."""
    top = f"<thead><tr>{''.join(f'<th>{escape(str(c))}</th>' for c in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(c))}</td>' for c in row)}</tr>" for row in rows)
    return f"<table>{top}<tbody>{body}</tbody></table>"
