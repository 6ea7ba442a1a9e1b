"""What `compare` found: a table, differences with intervals, one sentence, a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from bagwise.metrics import HIGHER_IS_BETTER
from bagwise.report.plots import plot_comparison
from bagwise.report.tables import measure_title, table

_LOWER = {name for name, higher in HIGHER_IS_BETTER.items() if not higher}
_SHOWN = (
    "average_precision",
    "ranking_loss",
    "hamming_loss",
    "macro_f1",
    "roc_auc",
    "accuracy",
    "instance_accuracy",
    "instance_accuracy_given_labels",
)


@dataclass(frozen=True)
class Fit:
    """One model on one fold; ``error`` says why there are no measures."""

    model: str
    repeat: int
    fold: int
    measures: dict[str, float]
    seconds: float
    cpu_seconds: float
    error: str


class Difference(NamedTuple):
    """How far the best model is ahead of another, with a 95 % interval.

    ``real`` says whether the lead stands after the number of models has been allowed for.
    """

    model: str
    mean: float
    low: float
    high: float
    p: float
    real: bool


def corrected_interval(
    differences: Any, ratio: float, alpha: float = 0.05
) -> tuple[float, float, float, float]:
    """Mean of paired differences over folds, its interval, and the p value of no difference.

    Parameters
    ----------
    differences : array of shape (n_fits,)
        One per fold and repeat.
    ratio : float
        Test bags over training bags; folds share training bags, and this is what it costs [1]_.
    alpha : float, default=0.05
        One less the coverage of the interval.

    References
    ----------
    .. [1] C. Nadeau, Y. Bengio: Inference for the generalization error. Machine Learning 52, 2003.

    Examples
    --------
    >>> mean, low, high, p = corrected_interval([0.1, 0.2, 0.15, 0.12, 0.18], ratio=0.25)
    >>> round(mean, 3), round(low, 3), round(high, 3), bool(p < 0.01)
    (0.15, 0.073, 0.227, True)
    """
    d = np.asarray(differences, dtype=np.float64)
    mean = float(d.mean())
    if len(d) < 2:
        return mean, -math.inf, math.inf, 1.0
    error = math.sqrt((1.0 / len(d) + ratio) * d.var(ddof=1))
    if error == 0:
        return mean, mean, mean, 1.0 if mean == 0 else 0.0
    reach = float(stats.t.ppf(1.0 - alpha / 2.0, len(d) - 1)) * error
    p = float(2.0 * stats.t.sf(abs(mean) / error, len(d) - 1))
    return mean, mean - reach, mean + reach, p


@dataclass(frozen=True)
class Comparison:
    """Cross-validated measures of several models.

    Parameters
    ----------
    measure : str
        What decides.
    models : tuple of str
        Names, in the order given.
    fits : tuple of Fit
        One per model, repeat and fold.
    ratio : float
        Test bags over training bags.
    simple : tuple of str
        Names of the yardsticks among the models.
    """

    measure: str
    models: tuple[str, ...]
    fits: tuple[Fit, ...]
    ratio: float
    simple: tuple[str, ...] = ()

    def values(self, model: str, measure: str | None = None) -> np.ndarray:
        """Values of a measure in every fold; NaN where the fit failed or the measure does not apply."""
        name = measure or self.measure
        return np.array([fit.measures.get(name, math.nan) for fit in self.fits if fit.model == model])

    @property
    def ranking(self) -> list[str]:
        """Models from best to worst; those that failed in some fold come last."""
        sign = 1.0 if self.measure in _LOWER else -1.0
        return sorted(self.models, key=lambda m: _last_if_nan(sign * float(self.values(m).mean())))

    @property
    def best(self) -> str:
        """The model with the best mean."""
        return self.ranking[0]

    @property
    def failures(self) -> dict[str, str]:
        """Models that failed, with the first reason."""
        return {fit.model: fit.error for fit in reversed(self.fits) if fit.error}

    def differences(self, alpha: float = 0.05) -> list[Difference]:
        """How far the best model is ahead of every other one; positive is better."""
        sign = -1.0 if self.measure in _LOWER else 1.0
        best = self.values(self.best)
        others = [name for name in self.ranking[1:] if np.isfinite(self.values(name)).all()]
        found = []
        for name in others:
            gain = sign * (best - self.values(name))
            mean, low, high, p = corrected_interval(gain, self.ratio, alpha)
            found.append(Difference(name, mean, low, high, p, p * len(others) < alpha))
        return found

    @property
    def sentence(self) -> str:
        """What to use, and whether the lead is real."""
        if not np.isfinite(self.values(self.best)).all():
            return "No model could be measured: " + "; ".join(f"{m}: {e}" for m, e in self.failures.items())
        differences = self.differences()
        said = f"Use {self.best}: {self._title} {self.values(self.best).mean():.3f}"
        if not differences:
            return f"{said}; nothing to compare it with."
        level = [d for d in differences if not d.real]
        if not level:
            runner_up = differences[0]
            return (
                f"{said}; it is ahead of every other model, of {runner_up.model} by {runner_up.mean:.3f} "
                f"(95 % interval {runner_up.low:.3f} to {runner_up.high:.3f}), and the lead is real."
            )
        names = _listed([d.model for d in level])
        said += f"; its lead over {names} may be chance"
        able = [d for d in level if d.model != "dummy"]
        quick = min(able, key=lambda d: self._seconds(d.model), default=None)
        if quick and self._seconds(self.best) > 2.0 * self._seconds(quick.model):
            times = self._seconds(self.best) / max(self._seconds(quick.model), 1e-9)
            said += f", and {quick.model} is {times:.0f} times as fast"
        return said + "."

    def table(self, style: Any = "text") -> Any:
        """Mean and standard deviation of every measure, and CPU seconds of a fit, best model first."""
        shown = [name for name in _SHOWN if any(name in fit.measures for fit in self.fits)]
        if self.measure not in shown:
            shown = [self.measure, *shown]
        titles = ["model", *(measure_title(name) for name in shown), "CPU s"]
        rows = []
        for model in self.ranking:
            cells = [_mean_sd(self.values(model, name)) for name in shown]
            rows.append([model, *cells, f"{self._seconds(model):.2f}"])
        return table(titles, rows, style=style, align="l" + "r" * (len(titles) - 1))

    def difference_table(self, style: Any = "text") -> Any:
        """Differences to the best model with their intervals."""
        rows = [
            [
                d.model,
                f"{d.mean:+.3f}",
                f"{d.low:+.3f} to {d.high:+.3f}",
                "yes" if d.real else "may be chance",
            ]
            for d in self.differences()
        ]
        titles = [f"{self.best} against", self._title, "95 % interval", "real"]
        return table(titles, rows, style=style, align="lrrl")

    def plot(self, figure: Any = None) -> Any:
        """Every fold as a point, the mean as a bar, best model on top."""
        return plot_comparison(self, figure)

    def to_frame(self) -> Any:
        """All fits as a pandas DataFrame, one row each."""
        import pandas as pd

        return pd.DataFrame(
            [{**{k: v for k, v in f.__dict__.items() if k != "measures"}, **f.measures} for f in self.fits]
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "measure": self.measure,
            "best": self.best,
            "sentence": self.sentence,
            "models": [
                {
                    "model": model,
                    "measures": self._summary(model),
                    "cpu_seconds": self._seconds(model),
                    "error": self.failures.get(model, ""),
                }
                for model in self.ranking
            ],
            "differences": [d._asdict() for d in self.differences()],
            "fits": [fit.__dict__ for fit in self.fits],
        }

    def __str__(self) -> str:
        parts = [self.table(), "", self.difference_table(), "", self.sentence]
        parts += [f"{model} failed: {reason}" for model, reason in self.failures.items()]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def _title(self) -> str:
        return self.measure.replace("_", " ")

    def _seconds(self, model: str) -> float:
        return float(np.mean([fit.cpu_seconds for fit in self.fits if fit.model == model]))

    def _summary(self, model: str) -> dict[str, dict[str, float]]:
        names = dict.fromkeys(name for fit in self.fits for name in fit.measures)
        found = {name: self.values(model, name) for name in names}
        return {
            name: {"mean": float(v.mean()), "sd": float(v.std(ddof=1)) if len(v) > 1 else 0.0}
            for name, v in found.items()
            if np.isfinite(v).all()
        }


def _last_if_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _mean_sd(values: np.ndarray) -> str:
    if not np.isfinite(values).all():
        return "–"
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" if len(values) > 1 else f"{values.mean():.3f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
