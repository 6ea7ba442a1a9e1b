"""Common checks that every estimator of bags must pass; usable by other packages for their own models.

Each check is a function of an unfitted estimator and raises AssertionError with a sentence that says what
does not hold. What cannot hold for a class is named, with the reason, in its ``_expected_failed_checks``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from bagwise.base import MIMLClassifier
from bagwise.checks import input_checks, output_checks
from bagwise.checks.sample import fitted, remembered_fits, sample_bags

__all__ = ["all_checks", "check_miml_estimator", "check_scikit_learn", "fitted", "sample_bags"]


def check_miml_estimator(estimator: MIMLClassifier, *, scikit_learn: bool = True) -> None:
    """Run all common checks, and scikit-learn's own, over an estimator.

    Parameters
    ----------
    estimator : MIMLClassifier
        Unfitted.
    scikit_learn : bool, default=True
        Whether to run scikit-learn's ``check_estimator`` as well.

    Examples
    --------
    >>> from bagwise.models import MIMLDummy
    >>> check_miml_estimator(MIMLDummy(), scikit_learn=False)
    """
    expected = estimator._expected_failed_checks()
    for check in all_checks():
        if check.__name__ not in expected:
            check(clone(estimator))
    if scikit_learn:
        check_scikit_learn(clone(estimator))


def all_checks() -> list[Callable[[Any], None]]:
    """List the checks, each a function of an unfitted estimator."""
    return [
        value
        for module in (output_checks, input_checks)
        for name, value in vars(module).items()
        if name.startswith("check_bags_")
    ]


def check_scikit_learn(estimator: MIMLClassifier) -> None:
    """Scikit-learn's own checks, on tables as bags of one instance; declared failures must have a reason."""
    own = {check.__name__ for check in all_checks()}
    declared = estimator._expected_failed_checks()
    expected = {name: reason for name, reason in declared.items() if name not in own}
    with remembered_fits(type(estimator)):
        results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]
    assert not failed, "\n".join(failed)
