"""A small medium for tests of the base: files of numbers, a line per instance."""

import numpy as np

from bagwise.base.parameters import Flag, Number
from bagwise.errors import DataError
from bagwise.media.base import COMMON, ToBags
from bagwise.media.parts import Part


class LinesToBags(ToBags):
    """Every line ``a b`` is an instance, times a scale; learned is the mean of the training instances."""

    medium = "text"
    suffixes = (".num",)
    may_be_empty = True
    _parameters = {"scale": Number(above=0), "centre": Flag(), **COMMON}

    def __init__(self, scale=1.0, *, centre=False, n_jobs=None, cache=None):
        self.scale = scale
        self.centre = centre
        self.n_jobs = n_jobs
        self.cache = cache

    def _part(self, source):
        if isinstance(source, str):
            with open(source, encoding="utf-8") as file:
                lines = file.read().split("\n")
            rows = [line.split() for line in lines if line]
            if any(len(row) != 2 for row in rows):
                raise DataError("expected two numbers in every line")
            X = np.array(rows, dtype=np.float32).reshape(-1, 2)
        else:
            X = np.asarray(source, dtype=np.float32)
        n = len(X)
        texts = np.array([f"line {k}" for k in range(n)], dtype=object)
        places = {"start_char": np.arange(n), "end_char": np.arange(n) + 1, "text": texts}
        return Part(X * np.float32(self.scale), places)

    def _learns(self):
        return self.centre

    def _learn(self, parts):
        self.mean_ = np.concatenate([part.X for part in parts]).mean(axis=0)

    def _finish(self, part):
        return Part(part.X - self.mean_, part.places) if self.centre else part

    def _names(self):
        return ["a", "b"]
