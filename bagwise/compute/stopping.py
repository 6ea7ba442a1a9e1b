"""Early stopping: a loop ends when a loss on bags held out has not fallen for some rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Patience"]


@dataclass
class Patience:
    """Judges the rounds of a loop by a score that should fall, and keeps what the best of them came to.

    All fields are plain values: a loop that is stopped writes them down, and goes on with
    ``Patience(**fields)``.

    Parameters
    ----------
    patience : int
        Rounds without a better score after which it is `exhausted`.
    least : float, default=0.0
        By how much a score must fall to be better; a not-a-number never is.
    rounds, best_round : int, default=0
        Rounds judged so far and the best of them, from 1; 0: none.
    best_score : float, default=inf
        Score of that round.
    best : object, optional
        What that round came to; whoever runs the loop puts it here.

    Examples
    --------
    >>> stopping = Patience(2)
    >>> for weights, loss in [("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 1.0), ("e", 0.0)]:
    ...     if stopping.better(loss):
    ...         stopping.best = weights
    ...     if stopping.exhausted:
    ...         break
    >>> weights, stopping.best, stopping.best_round, stopping.rounds
    ('d', 'b', 2, 4)
    """

    patience: int
    least: float = 0.0
    rounds: int = 0
    best_round: int = 0
    best_score: float = np.inf
    best: Any = None

    def better(self, score: float) -> bool:
        """Count a round; whether its score is better than that of all before."""
        self.rounds += 1
        if not score < self.best_score - self.least:
            return False
        self.best_score, self.best_round = score, self.rounds
        return True

    @property
    def exhausted(self) -> bool:
        """Whether the last better score is too long ago."""
        return self.rounds - self.best_round >= self.patience
