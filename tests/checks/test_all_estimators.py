"""Every estimator, as in `_test_params` and with its defaults, times every common check."""

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from pyarrow import parquet
from sklearn.base import clone

import bagwise
from bagwise import Dataset, actions, all_estimators
from bagwise.checks import all_checks, check_scikit_learn, fitted, sample_bags
from bagwise.inspection import label_names

# Those that need a package which is not here are skipped, with the reason, by a test of their own below.
ESTIMATORS = [cls for _, cls in all_estimators() if all(map(find_spec, cls.traits.requires))]


@pytest.mark.parametrize(
    "cls", [c for _, c in all_estimators() if c not in ESTIMATORS], ids=lambda c: c.__name__
)
def test_what_cannot_run_here_says_what_it_needs(cls):
    bags, Y = sample_bags()
    with pytest.raises(ImportError, match="pip install"):
        cls().fit(bags, Y)
    pytest.skip(f"common checks of {cls.__name__}: {', '.join(cls.traits.requires)} is not installed")


def small(cls):
    return cls(**cls._test_params())


def default(cls):
    """What users meet; seeded, since without a seed nothing can be compared."""
    model = cls()
    return model.set_params(random_state=0) if "random_state" in model.get_params(deep=False) else model


def _variants():
    for cls in ESTIMATORS:
        yield pytest.param(small(cls), id=cls.__name__)
        if repr(small(cls)) != repr(default(cls)) and not cls.traits.requires:  # networks: in their own tests
            yield pytest.param(default(cls), id=f"{cls.__name__}, defaults")


def command_line_says_what_predict_says(model):
    model, bags, _ = fitted(model)
    names = ("a", "b", "c")
    with TemporaryDirectory() as folder:
        place = Path(folder)
        bagwise.save(model, place / "model.skops")
        bagwise.write(Dataset(bags, np.zeros((len(bags), 3)), label_names=names), place / "data.npz")
        actions.predict(place / "model.skops", place / "data.npz", place / "out.parquet")
        table = parquet.read_table(place / "out.parquet").to_pydict()
    known = label_names(model)
    expected = [[known[l] for l in np.flatnonzero(row)] for row in model.predict(bags)]
    assert table["labels"] == expected
    np.testing.assert_array_equal(np.column_stack([table[n] for n in known]), model.decision_function(bags))


CHECKS = [*all_checks(), command_line_says_what_predict_says]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
# model after model, so that checks share its fit
@pytest.mark.parametrize("model", list(_variants()))
def test_common_check(model, check):
    reason = model._expected_failed_checks().get(check.__name__)
    try:
        check(clone(model))
    except AssertionError:
        if reason is None:
            raise
        pytest.xfail(reason)


@pytest.mark.parametrize("cls", [c for c in ESTIMATORS if c.traits.requires], ids=lambda cls: cls.__name__)
def test_command_line_of_networks_as_they_come(cls):
    command_line_says_what_predict_says(default(cls).set_params(max_epochs=2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_scikit_learn_check(cls):
    check_scikit_learn(small(cls))


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
