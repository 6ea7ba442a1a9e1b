"""One function per verb of the command line; a program or a web page calls the same functions."""

from bagwise.actions.demonstration import demo
from bagwise.actions.learning import train
from bagwise.actions.matching import open_data
from bagwise.actions.reproducing import list_experiments, reproduce
from bagwise.actions.verbs import annotate, convert, fit, info, list_all, predict, score

__all__ = [
    "annotate",
    "convert",
    "demo",
    "fit",
    "info",
    "list_all",
    "list_experiments",
    "open_data",
    "predict",
    "reproduce",
    "score",
    "train",
]
