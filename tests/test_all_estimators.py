"""Every estimator times every common check, scikit-learn's own included."""

import inspect
import re

import pytest

from bagwise import all_estimators
from bagwise.checks import all_checks
from bagwise.checks.estimator_checks import check_scikit_learn

ESTIMATORS = [cls for _, cls in all_estimators()]


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_common_check(cls, check):
    check(cls(**cls._test_params()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_scikit_learn_check(cls):
    check_scikit_learn(cls(**cls._test_params()))


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_every_parameter_is_documented(cls):
    parameters = cls().get_params(deep=False)
    documented = set()
    for line in re.findall(
        r"^    (\w[\w, ]*) : ", inspect.cleandoc(cls.__doc__).replace("\n", "\n    "), re.M
    ):
        documented |= {name.strip() for name in line.split(",")}
    assert not set(parameters) - documented, f"undocumented: {sorted(set(parameters) - documented)}"


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_docstring_has_reference_and_example(cls):
    assert "References" in cls.__doc__
    assert ">>>" in cls.__doc__
