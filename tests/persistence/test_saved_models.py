"""Models come back the same from files, or are refused by name."""

import json

import numpy as np
import pytest
import skops.io
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from spoiled_files import rewritten, without_fingerprint

import bagwise
from bagwise import all_estimators
from bagwise.checks import fitted, sample_bags
from bagwise.errors import BagwiseError, DataError, UnsafeFileError
from bagwise.model_selection import LabelThresholds
from bagwise.models import (
    MIMLDummy,
    SingleInstanceLogisticRegression,
)
from bagwise.persistence import model_facts
from bagwise.preprocessing import OnInstances


@pytest.mark.parametrize("cls", [c for _, c in all_estimators()], ids=lambda c: c.__name__)
def test_every_estimator_comes_back_the_same(cls, tmp_path):
    for package in cls.traits.requires:
        pytest.importorskip(package)
    model, bags, _ = fitted(cls(**cls._test_params()))
    bagwise.save(model, tmp_path / "model.skops")
    again = bagwise.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(bags), model.decision_function(bags))
    assert str(again.get_params()) == str(model.get_params())
    assert [p.name for p in tmp_path.iterdir()] == ["model.skops"]


def test_pipelines_searches_and_thresholds(tmp_path):
    bags, Y = sample_bags()
    pipeline = make_pipeline(OnInstances(StandardScaler()), SingleInstanceLogisticRegression())
    search = GridSearchCV(pipeline, {"singleinstancelogisticregression__alpha": [1.0, 2.0]}, cv=3)
    for model in (pipeline, search, LabelThresholds(MIMLDummy(), cv=3)):
        model.fit(bags, Y)
        bagwise.save(model, tmp_path / "m.skops")
        np.testing.assert_array_equal(bagwise.load(tmp_path / "m.skops").predict(bags), model.predict(bags))


def test_versions_are_recorded(tmp_path):
    bags, Y = sample_bags()
    bagwise.save(MIMLDummy().fit(bags, Y), tmp_path / "m.skops")
    facts = model_facts(tmp_path / "m.skops")
    assert facts["model"] == "MIMLDummy" and facts["versions"]["bagwise"] == bagwise.__version__


class Foreign:
    def __init__(self):
        self.value = 1


def _shout(X):
    raise AssertionError("code from the file was run")


def test_foreign_types_are_refused_by_name(tmp_path):
    path = tmp_path / "foreign.skops"
    skops.io.dump(Foreign(), path)
    with pytest.raises(UnsafeFileError, match="Foreign"):
        bagwise.load(path)
    skops.io.dump(make_pipeline(FunctionTransformer(_shout)), path)
    with pytest.raises(UnsafeFileError, match="_shout"):
        bagwise.load(path)
    with pytest.raises(UnsafeFileError, match="_shout"):
        bagwise.save(make_pipeline(FunctionTransformer(_shout)), tmp_path / "new.skops")
    assert not (tmp_path / "new.skops").exists()


def test_a_function_of_ours_is_foreign_too(tmp_path):
    """A file may name any importable object; only classes on our list may come to life."""
    bags, Y = sample_bags()
    bagwise.save(MIMLDummy().fit(bags, Y), tmp_path / "m.skops")

    def evil(parts):
        schema = json.loads(parts["schema.json"])
        schema["__class__"], schema["__module__"] = "replacing", "bagwise.utils.files"
        parts["schema.json"] = json.dumps(schema).encode()
        without_fingerprint(parts)

    rewritten(tmp_path / "m.skops", tmp_path / "evil.skops", evil)
    with pytest.raises(UnsafeFileError, match=r"bagwise\.utils\.files\.replacing"):
        bagwise.load(tmp_path / "evil.skops")


def test_damaged_files_give_clear_errors(tmp_path):
    bags, Y = sample_bags()
    path = tmp_path / "m.skops"
    bagwise.save(MIMLDummy().fit(bags, Y), path)
    whole = path.read_bytes()
    with pytest.raises(DataError, match="no such file"):
        bagwise.load(tmp_path / "absent.skops")
    rng = np.random.default_rng(0)
    for _ in range(40):
        cut = rng.integers(0, len(whole))
        damaged = bytearray(whole)
        damaged[cut] ^= 0xFF
        for content in (whole[:cut], bytes(damaged)):
            path.write_bytes(content)
            try:
                bagwise.load(path)
            except BagwiseError:
                continue


def test_a_failed_save_leaves_the_old_file(tmp_path):
    bags, Y = sample_bags()
    path = tmp_path / "m.skops"
    bagwise.save(MIMLDummy().fit(bags, Y), path)
    before = path.read_bytes()
    with pytest.raises(BagwiseError):
        bagwise.save(make_pipeline(FunctionTransformer(_shout)), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.skops"]
