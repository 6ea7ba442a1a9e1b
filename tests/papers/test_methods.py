"""Models from their description in a suite."""

import numpy as np
import pytest

from bagwise.datasets import make_mimlmix_like
from bagwise.errors import DataError
from bagwise.models import MIMLMix
from papers.methods import fit_model


def test_a_method_that_sees_one_view_is_fitted_to_it_alone():
    data = make_mimlmix_like("imageclef", 40, missing=0.4, random_state=1)
    params = {"n_topics": 4, "random_state": 3}
    spec = {"estimator": "MIMLMix", "params": params}
    both, _ = fit_model(spec, data.bags, data.Y, 0)
    for number, name in enumerate(data.bags.view_names, start=1):
        found, _ = fit_model(spec | {"view": number}, data.bags, data.Y, 0)
        plain = MIMLMix(**params).fit(data.bags[name], data.Y)
        scores = found.decision_function(data.bags)
        np.testing.assert_array_equal(scores, plain.decision_function(data.bags[name]))
        assert (scores != both.decision_function(data.bags)).any()


def test_a_view_that_is_not_there_is_told_with_those_that_are():
    data = make_mimlmix_like("imageclef", 20)
    with pytest.raises(DataError, match="no view 3; views are visual, textual"):
        fit_model({"estimator": "MIMLMix", "view": 3}, data.bags, data.Y, 0)
