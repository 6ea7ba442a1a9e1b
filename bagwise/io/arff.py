r"""ARFF with a relational attribute: one line per bag, its instances in one quoted field.

::

    @relation birds
    @attribute id {7,9}
    @attribute bag relational
      @attribute f1 numeric
      @attribute f2 numeric
    @end bag
    @attribute wren {0,1}
    @attribute robin {0,1}
    @data
    7,"0.5,1\n0.25,3",1,0
    9,"2,2",0,1

A Mulan label list (``birds.xml`` beside ``birds.arff``) says which attributes are labels; without one, every
attribute with the values 0 and 1 is, except the first if it is called ``id``, ``bag_id`` or alike. Labels
keep the order of the ARFF header; a file without any holds bags to be predicted.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.arrow import natural_names
from bagwise.bags.dataset import Dataset
from bagwise.bags.labels import unknown_label
from bagwise.errors import DataError
from bagwise.io._arff_grammar import (
    NAMESPACE,
    Header,
    arff_lines,
    is_arff,
    is_relational,
    quote,
    read_header,
    read_label_list,
    split_fields,
    unescape,
)
from bagwise.io._facts import lost_facts, writable_bags
from bagwise.io._numbers import parse_rows
from bagwise.io._source import MAX_BYTES, blame, check_finite, check_unique_ids, of_file
from bagwise.utils.files import replacing

_ID = re.compile(r"(bag)?[ _-]?(id|name|number)( of this file)?|bag", re.IGNORECASE)  # what ids are called
_PAIR = re.compile(r".+_[12]\.arff(\.gz)?", re.IGNORECASE)


def recognises(path: Path, head: bytes) -> bool:
    """Whether this looks like ARFF, other than one half of a pair (see `bagwise.io.arff_pair`)."""
    if not is_arff(head):
        return False
    return is_relational(head) or not _PAIR.fullmatch(path.name)


@of_file
def read(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    xml: str | Path | None = None,
    labels: Sequence[str] | None = None,
) -> Dataset:
    r"""Read bags from ARFF with a relational attribute.

    Parameters
    ----------
    path : path
        The file, plain or gzip.
    max_bytes : int
        What the file may grow to when unpacked.
    xml : path, optional
        Label list; by default the ``.xml`` file of the same stem, where there is one.
    labels : sequence of str, optional
        The label attributes, in this order; replaces the label list.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "toy.arff"
    >>> _ = path.write_text('''@relation toy
    ... @attribute id {a,b}
    ... @attribute bag relational
    ... @attribute f1 numeric
    ... @end bag
    ... @attribute wren {0,1}
    ... @data
    ... a,"1\\n2.5",1
    ... b,"3E-1",0
    ... ''')
    >>> data = read(path)
    >>> data.bags.X.ravel().tolist(), data.bags.sizes.tolist(), data.label_sets
    ([1.0, 2.5, 0.3], [2, 1], [['wren'], []])
    """
    path = Path(path)
    lines = arff_lines(path, max_bytes)
    header = read_header(lines)
    names = _label_names(header, path, xml, labels, max_bytes)
    bag_at, id_at = _roles(header, names)
    columns = [next(k for k, a in enumerate(header.attributes) if a.name == name) for name in names]
    known_ids = set(header.attributes[id_at].values) if id_at is not None else set()

    rows: list[str] = []  # one text per instance
    row_lines: list[int] = []
    sizes, ids, Y, bag_lines = [], [], [], []
    for line, text in lines:
        fields = _fields(text, len(header.attributes), line)
        field = fields[bag_at]
        instances = field.split("\\n") if field.strip() else []
        rows += instances
        row_lines += [line] * len(instances)
        sizes.append(len(instances))
        for k in columns:
            if fields[k] not in ("0", "1"):
                problem = f"label {header.attributes[k].name!r} is {fields[k][:40]!r}, expected 0 or 1"
                raise DataError(problem, line=line)
        Y.append([int(fields[k]) for k in columns])
        bag_lines.append(line)
        if id_at is not None:
            name = unescape(fields[id_at])
            if known_ids and name not in known_ids:
                raise DataError(f"the id {name!r} is not among those that the header declares", line=line)
            ids.append(name)
    if not sizes:
        raise DataError("no bags after @data")

    features = header.attributes[bag_at].inner
    X = parse_rows(rows, row_lines, len(features), unit="instance")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    bag_ids = natural_names(ids, bag_lines) if id_at is not None else None
    check_unique_ids(bag_ids, path, bag_lines)
    feature_names = [a.name for a in features]
    check_finite(X, offsets, bag_ids, path, row_lines, feature_names)
    bags = Bags(X, offsets, bag_ids=bag_ids, feature_names=feature_names)
    matrix = np.array(Y, dtype=np.int8).reshape(len(sizes), len(names))
    return Dataset(bags, matrix, tuple(names), name=header.relation)


_LEFT_OUT = (
    "instance_Y",
    "instance_info",
    "groups",
    "splits",
    "description",
    "citation",
    "licence",
    "recipe",
)


def write(dataset: Dataset, path: str | Path) -> list[str]:
    """Write bags and labels as ARFF; returns what the format has no room for, such as instance labels.

    A path that ends in ``.gz`` is compressed.
    """
    path = Path(path)
    with blame(path):
        bags = writable_bags(dataset, "ARFF")
    features = bags.feature_names or [f"f{k + 1}" for k in range(bags.n_features)]
    id_name = next(
        name for name in ("id", "bag_id", "bag id of this file") if name not in dataset.label_names
    )
    bag_name = next(
        name for name in ("bag", "instances", "bag of this file") if name not in dataset.label_names
    )
    ids = [quote(str(i)) for i in bags.bag_ids.tolist()]
    head = [
        f"@relation {quote(dataset.name or 'bags')}",
        "",
        f"@attribute {quote(id_name)} {{{','.join(ids)}}}",
        f"@attribute {quote(bag_name)} relational",
        *(f"  @attribute {quote(name)} numeric" for name in features),
        f"@end {quote(bag_name)}",
        *(f"@attribute {quote(name)} {{0,1}}" for name in dataset.label_names),
        "",
        "@data",
    ]
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="\n") as handle:
        handle.write("\n".join(head) + "\n")
        Y = dataset.Y_sparse
        for k, (bag_id, bag) in enumerate(zip(ids, bags)):
            y = Y[[k]].toarray()[0]
            dense = bag.toarray() if sparse.issparse(bag) else bag
            field = "\\n".join(",".join(map(repr, row)) for row in dense.tolist())
            handle.write(",".join([bag_id, f'"{field}"', *map(str, y.tolist())]) + "\n")
    return lost_facts(dataset, _LEFT_OUT)


def write_label_list(dataset: Dataset, path: str | Path) -> Path:
    """Write the Mulan label list that belongs beside the ARFF file ``path``; returns where it is.

    `read` does not need it for files of `write`; other programs do.

    Examples
    --------
    >>> import tempfile
    >>> data = Dataset(Bags.from_list([[[1.0]]]), [["wren"]])
    >>> write_label_list(data, Path(tempfile.mkdtemp()) / "toy.arff.gz").name
    'toy.xml'
    """
    beside = _label_list_path(Path(path))
    for name in dataset.label_names:
        if not name.isprintable():
            raise DataError(f"the label name {name!r} cannot stand in an XML label list", path=beside)
    with replacing(beside) as temporary:
        items = "".join(f"  <label name={quoteattr(name)}/>\n" for name in dataset.label_names)
        head = f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{NAMESPACE}">\n'
        temporary.write_text(f"{head}{items}</labels>\n", encoding="utf-8", newline="\n")
    return beside


def _label_list_path(path: Path) -> Path:
    stem = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return stem.with_suffix(".xml")


def _label_names(
    header: Header, path: Path, xml: str | Path | None, labels: Sequence[str] | None, max_bytes: int
) -> list[str]:
    known = [a.name for a in header.attributes if a.kind != "relational"]
    if labels is not None:
        for name in labels:
            if name not in known:
                raise unknown_label(name, known)
        return list(labels)
    beside = _label_list_path(path)
    if xml is None and beside.exists():
        xml = beside
    if xml is None:
        binary = [a for a in header.attributes if a.kind == "nominal" and set(a.values) == {"0", "1"}]
        first = header.attributes[0]  # two bags may be called 0 and 1
        return [a.name for a in binary if a is not first or not _ID.fullmatch(a.name)]
    listed = read_label_list(xml, max_bytes)
    for name, line in listed.items():
        if name not in known:
            raise unknown_label(name, known).at(xml, line)
    return [name for name in known if name in listed]


def _roles(header: Header, labels: Sequence[str]) -> tuple[int, int | None]:
    """Positions of the relational attribute and, where there is one, of the bag id."""
    relational = [k for k, a in enumerate(header.attributes) if a.kind == "relational"]
    if len(relational) != 1:
        raise DataError(
            f"{len(relational)} relational attributes, expected one that holds the instances of a bag"
        )
    bag = header.attributes[relational[0]]
    if not bag.inner:
        raise DataError(f"the relational attribute {bag.name!r} has no attributes", line=bag.line)
    for inner in bag.inner:
        if inner.kind != "numeric":
            raise DataError(
                f"attribute {inner.name!r} is {inner.kind}, expected numeric; recode it as numbers first",
                line=inner.line,
            )
    others = [
        k for k, a in enumerate(header.attributes) if a.name not in set(labels) and a.kind != "relational"
    ]
    if len(others) > 1:
        extra = header.attributes[others[1]]
        raise DataError(
            f"attribute {extra.name!r} is neither a label nor the bag id "
            f"({header.attributes[others[0]].name!r}); labels are the attributes with the values {{0,1}}, "
            "those of the .xml file, or labels=[...]" + ("" if labels else "; none was found"),
            line=extra.line,
        )
    return relational[0], others[0] if others else None


def _fields(text: str, expected: int, line: int) -> list[str]:
    if text.startswith("{"):
        raise DataError("sparse ARFF rows {...} are not supported; write them out in full", line=line)
    try:
        fields = split_fields(text)
    except DataError as error:
        raise DataError(error.message, line=line) from None
    if len(fields) != expected:
        raise DataError(f"expected {expected} fields, found {len(fields)}", line=line)
    return fields
