"""How data may come: types, layouts, empty bags, and what is refused by name."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.base.parameters import Number, rules_of
from bagwise.checks.sample import assert_refuses, fitted, sample_bags, thin_bags


def check_bags_list_of_arrays(estimator: MIMLClassifier) -> None:
    """A list of 2-D arrays is as good as a Bags."""
    model, bags, _ = fitted(estimator)
    assert_array_equal(model.predict(list(bags)), model.predict(bags))


def check_bags_sparse(estimator: MIMLClassifier) -> None:
    """CSR instances train the same model as the same dense ones, few zeros or many, and get its scores."""
    if not estimator.traits.sparse:
        _, as_csr, Y = thin_bags()
        assert_refuses(lambda: estimator.fit(as_csr, Y), "sparse")
        return
    for n_empty_columns in (0, 60):
        dense, as_csr, Y = thin_bags(n_empty_columns)
        model = clone(estimator).fit(dense, Y)
        expected = model.decision_function(dense)
        message = "the same bags as CSR get other scores"
        assert_allclose(model.decision_function(as_csr), expected, rtol=1e-5, atol=1e-6, err_msg=message)
        from_csr = clone(estimator).fit(as_csr, Y).decision_function(as_csr)
        message = f"training on CSR differs from training on the same dense bags ({n_empty_columns} zeros)"
        assert_allclose(from_csr, expected, rtol=1e-3, atol=1e-4, err_msg=message)


def check_bags_float32(estimator: MIMLClassifier) -> None:
    """Single precision gives nearly the same scores as double precision, in training as in prediction."""
    model, bags, Y = fitted(estimator)
    single = Bags(bags.X.astype(np.float32), bags.offsets, instance_info=bags.instance_info)
    expected = model.decision_function(bags)
    assert_allclose(model.decision_function(single), expected, rtol=1e-2, atol=1e-3)
    from_single = clone(estimator).fit(single, Y).decision_function(single)
    message = "training in single precision differs from training in double precision"
    assert_allclose(from_single, expected, rtol=2e-2, atol=2e-2, err_msg=message)


def check_bags_read_only(estimator: MIMLClassifier) -> None:
    """Memory that cannot be written, as of a memory map, is no obstacle, and nothing is written to it."""
    for layout in ["dense", "csr"] if estimator.traits.sparse else ["dense"]:
        bags, Y = sample_bags(n_bags=20)
        if layout == "csr":
            bags = Bags(sparse.csr_array(bags.X), bags.offsets, instance_info=bags.instance_info)
        values = [bags.X.data, bags.X.indices, bags.X.indptr] if layout == "csr" else [bags.X]
        arrays = [*values, bags.offsets, Y, bags.instance_info["label"]]
        before = [array.copy() for array in arrays]
        for array in arrays:
            array.setflags(write=False)
        model = clone(estimator).fit(bags, Y)
        model.predict(bags)
        model.instance_scores(bags)
        model.annotate(bags, Y)
        for array, copy in zip(arrays, before):
            assert_array_equal(array, copy, err_msg="the caller's arrays were changed")
            assert not array.flags.writeable, "the flags of the caller's arrays were changed"


def check_bags_single_instances(estimator: MIMLClassifier) -> None:
    """Bags of one instance are bags too."""
    bags, _ = sample_bags()
    singles = bags.singletons()
    Y = np.eye(3, dtype=np.int64)[singles.instance_info["label"]]
    estimator.fit(singles, Y)
    assert estimator.predict(singles).shape == Y.shape


def check_bags_empty(estimator: MIMLClassifier) -> None:
    """An empty bag is taken or refused by its name."""
    model, bags, _ = fitted(estimator)
    ids = np.array([f"bag-{i}" for i in range(3)])
    holed = Bags(bags.X[:4], np.array([0, 2, 2, 4]), bag_ids=ids)
    if model.traits.empty_bags:
        scores = model.decision_function(holed)
        assert np.isfinite(scores).all(), "an empty bag gets NaN or infinite scores"
    else:
        assert_refuses(lambda: model.predict(holed), "bag-1")


def check_bags_bad_values(estimator: MIMLClassifier) -> None:
    """NaN is refused with the name of the bag, a wrong width or no label at all with the numbers."""
    model, bags, Y = fitted(estimator)
    spoiled = bags.X.copy()
    spoiled[bags.offsets[7], 0] = np.nan
    named = Bags(spoiled, bags.offsets, bag_ids=[f"bag-{i}" for i in range(len(bags))])
    assert_refuses(lambda: clone(estimator).fit(named, Y), "bag-7")
    assert_refuses(lambda: model.predict(bags[:, :2]), "features")
    assert_refuses(lambda: clone(estimator).fit(bags, Y[:-1]), "40")
    assert_refuses(lambda: clone(estimator).fit(bags, Y[:, :0]), "no labels to learn from")


# ----------------------------------------------------------------------
# The estimator as an object: parameters, fitted state, copies


# what may be called before fit
_BEFORE_FIT = ("fit", "get_", "set_", "partial_fit")


def check_bags_parameters(estimator: MIMLClassifier) -> None:
    """Every parameter refuses what it cannot be, before learning, in one line that names it."""
    bags, Y = sample_bags(n_bags=12)
    for name, wrong in _bad_values(estimator):
        model = clone(estimator)
        setattr(model, name, wrong)  # set_params would look into nested estimators
        try:
            model.fit(bags, Y)
        except (ValueError, TypeError) as error:
            message = str(error)
            assert name in message and "\n" not in message, f"{name}={wrong!r}: the error says {message!r}"
        else:
            raise AssertionError(f"{name}={wrong!r} is taken")


def _bad_values(estimator: MIMLClassifier) -> Iterator[tuple[str, Any]]:
    """Values next to what the rules of each parameter take, and NaN, infinity and -1 where numbers are."""
    for name, entry in estimator._parameters.items():
        rules = rules_of(entry)
        wrong = [value for rule in rules for value in rule.bad_examples()]
        if any(isinstance(rule, Number) for rule in rules):
            wrong += [math.nan, math.inf, -math.inf, -1, -0.5]
        for value in wrong:
            if not any(rule.takes(value) for rule in rules):
                yield name, value


def check_bags_not_fitted(estimator: MIMLClassifier) -> None:
    """Every public method that needs a fit says so before one."""
    bags, Y = sample_bags(n_bags=5)
    for name, method in _public_methods(estimator):
        needed = [
            Y if parameter.name in ("y", "Y") else bags
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        try:
            method(*needed)
        except NotFittedError:
            continue
        except Exception as error:
            raise AssertionError(f"{name} before fit raises {error!r}, not NotFittedError") from error
        raise AssertionError(f"{name} answers before fit")


def _public_methods(estimator: MIMLClassifier) -> Iterator[tuple[str, Any]]:
    for name in dir(type(estimator)):
        static = inspect.getattr_static(type(estimator), name)
        if name.startswith(("_", *_BEFORE_FIT)) or isinstance(static, (classmethod, staticmethod, property)):
            continue
        method = getattr(estimator, name, None)  # None: not available with these settings
        if inspect.ismethod(method):
            yield name, method


def check_bags_pickle_and_clone(estimator: MIMLClassifier) -> None:
    """A pickled model predicts the same; a clone knows nothing of the fit."""
    model, bags, _ = fitted(estimator)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(bags), model.predict(bags))
    assert not hasattr(clone(model), "classes_")
