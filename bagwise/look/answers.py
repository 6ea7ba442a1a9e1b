"""What a model says of all bags, scored in blocks so that looking can start before all are done."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from bagwise.actions.running import runs
from bagwise.errors import in_one_line
from bagwise.inspection import label_names, last_estimator, scores_and_labels

_BLOCK = 20_000  # instances scored at a time: small, so that the first page has answers soon


class Answers:
    """What one model says of all bags, filled in block by block.

    Attributes
    ----------
    names : tuple of str
        Labels of the model.
    values : float32 array of shape (n_bags, n_labels)
        Probabilities; for a model without them, scores squeezed between 0 and 1, one half where the model
        decides. NaN where a bag was not yet scored.
    chosen : bool array of shape (n_bags, n_labels)
        Labels predicted.
    done : int
        Bags scored so far.
    failed : str or None
        Why scoring stopped.
    """

    def __init__(self, model: Any, bags: Any) -> None:
        self.model, self.bags = model, bags
        self.names = tuple(label_names(model))
        shape = (len(bags), len(self.names))
        self.values = np.full(shape, np.nan, dtype=np.float32)
        self.chosen = np.zeros(shape, dtype=bool)
        self.done = 0
        self.failed: str | None = None
        self.probabilities = hasattr(last_estimator(model), "predict_proba")
        self.scale: np.ndarray | None = None
        self.stopped = False

    def fill(self) -> None:
        """Score all bags that are not scored yet."""
        try:
            for _ in self.steps():
                if self.stopped:
                    return
        except Exception as error:
            self.failed = in_one_line(error, 500)

    def steps(self) -> Iterator[int]:
        """Score block by block; gives the number of bags done after each."""
        for a, b in runs(self.bags, _BLOCK, _BLOCK // 10):
            if a >= self.done:
                self.values[a:b], self.chosen[a:b] = self._ask(a, b)
                self.done = b
                yield b

    def _ask(self, a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
        block = self.bags[a:b]
        scores, chosen = scores_and_labels(self.model, block)
        if not self.probabilities:
            return self.squeezed(scores), chosen
        P = np.asarray(self.model.predict_proba(block))
        return P[:, 1:] if P.shape[1] == len(self.names) + 1 else P, chosen

    def alone(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and labels of one bag that was not scored yet."""
        values, chosen = self._ask(number, number + 1)
        return values[0], chosen[0]

    def squeezed(self, scores: np.ndarray) -> np.ndarray:
        """Scores between 0 and 1, on the scale of the first block."""
        if self.scale is None:
            spread = np.nanstd(np.where(np.isfinite(scores), scores, np.nan), axis=0)
            self.scale = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
        return expit(np.clip(2.0 * scores / self.scale, -30, 30))


def spread(matrix: np.ndarray, width: int, fill: Any, columns: Any = None) -> np.ndarray:
    """A matrix over some labels as one over all: its columns come first, or where ``columns`` says."""
    wide = np.full((len(matrix), width), fill, dtype=matrix.dtype)
    wide[:, slice(matrix.shape[1]) if columns is None else columns] = matrix
    return wide


def number_or_none(value: Any) -> float | None:
    """A number for JSON, to four digits; None where there is none."""
    value = float(value)
    return round(value, 4) if np.isfinite(value) else None


class Recent:
    """The last few of what was made for a key; what was forgotten is made again.

    Examples
    --------
    >>> recent = Recent(2, threading.RLock())
    >>> [recent.get(k, lambda: print("made", k)) for k in (1, 1)]
    made 1
    [None, None]
    """

    def __init__(self, most: int, mutex: threading.RLock) -> None:
        self.most, self.mutex = most, mutex
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for a key; making takes long, and nobody waits for it to ask for another."""
        with self.mutex:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self.mutex:
            self._kept[key] = made
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made
