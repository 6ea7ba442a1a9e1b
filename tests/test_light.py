"""Light at the door: what an import brings, and what a fit does without."""

import json
import subprocess
import sys

import pytest

import bagwise
from bagwise import all_estimators, models

WITHOUT = ("typer", "rich", "jinja2", "matplotlib", "pooch")  # for the command line, pages, plots, downloads

BLOCKED = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {WITHOUT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def answer_of(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("settings", ["ORedLogisticRegression(max_iter=3)", "BagClassifier()", "MIMLKNN()"])
def test_a_fit_needs_no_tools_of_the_command_line(settings):
    found = answer_of(
        BLOCKED
        + f"""
import json
import numpy as np
from bagwise import Bags, load_dataset
from bagwise.models import {settings.partition("(")[0]}
rng = np.random.RandomState(0)
Y = rng.randint(2, size=(40, 2))
bags = Bags.from_list([rng.randn(1 + k % 4, 3) + Y[k, 0] for k in range(40)])
model = {settings}.fit(bags, Y)
print(json.dumps([model.predict(bags).shape, sorted(set({WITHOUT}) & set(sys.modules))]))
"""
    )
    assert found == [[40, 2], []]


def test_one_estimator_does_not_bring_the_others():
    modules = answer_of(
        "import json, sys\nfrom bagwise.models import MIMLKNN\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('bagwise')]))"
    )
    assert "bagwise.models.distance.miml_knn" in modules
    assert len(modules) <= 80
    rooms = {name.split(".")[2] for name in modules if name.startswith("bagwise.models.")}
    assert rooms <= {"_shared", "distance"}


def test_the_catalogue_holds_what_it_says():
    assert set(models.__all__) == set(models._PLACES) == set(dir(models))
    for name, place in models._PLACES.items():
        found = getattr(models, name)
        assert found.__module__ == place or not isinstance(found, type)
    assert {name for name, _ in all_estimators()} <= set(models.__all__)
    with pytest.raises(AttributeError, match="NoSuchModel"):
        _ = models.NoSuchModel


def test_the_package_names_its_rooms():
    assert set(bagwise.__all__) <= set(dir(bagwise))
    assert all(getattr(bagwise, name) is not None for name in dir(bagwise))
