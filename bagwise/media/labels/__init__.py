"""Labels in and answers out, one file per tool: Raven, Audacity, Label Studio, COCO, QuPath, tables.

`read_labels` reads what people wrote down about files, `instance_labels` brings the places in it to the
parts of bags, `write_answers` writes what a model found the way a tool expects it.
"""

from bagwise.media.labels.answers import Found
from bagwise.media.labels.read import read_labels
from bagwise.media.labels.span import Labels, Span, instance_labels
from bagwise.media.labels.write import KINDS, Options, check_kind, write_answers

__all__ = [
    "KINDS",
    "Found",
    "Labels",
    "Options",
    "Span",
    "check_kind",
    "instance_labels",
    "read_labels",
    "write_answers",
]
