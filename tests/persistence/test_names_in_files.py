"""Classes in files are named by their public place, and older names still load."""

import json
import zipfile

import numpy as np
from sklearn.model_selection import GridSearchCV
from spoiled_files import rewritten, without_fingerprint

import bagwise
from bagwise.checks import sample_bags
from bagwise.model_selection import MultilabelKFold
from bagwise.models import (
    MIMLKNN,
)


def names_in(path):
    with zipfile.ZipFile(path) as archive:
        text = archive.read("schema.json").decode()
    found = set()

    def collect(node):
        if "__module__" in node:
            found.add(f"{node['__module__']}.{node['__class__']}")
        return node

    json.loads(text, object_hook=collect)
    return {name for name in found if name.startswith("bagwise")}


def test_files_name_classes_by_their_public_place(tmp_path):
    bags, Y = sample_bags()
    model = GridSearchCV(MIMLKNN(), {}, cv=MultilabelKFold(2)).fit(bags, Y)
    bagwise.save(model, tmp_path / "m.skops")
    expected = {"bagwise.models.MIMLKNN", "bagwise.model_selection.MultilabelKFold", "bagwise.Bags"}
    assert expected <= names_in(tmp_path / "m.skops")
    for name in names_in(tmp_path / "m.skops"):
        module, _, cls = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[cls]), cls)


def test_files_of_before_public_places_still_load(tmp_path):
    bags, Y = sample_bags()
    model = MIMLKNN().fit(bags, Y)
    bagwise.save(model, tmp_path / "m.skops")

    def as_before(parts):
        text = parts["schema.json"].decode()
        schema = json.loads(text)

        def back(node):
            if isinstance(node, dict):
                old = {"MIMLKNN": "bagwise.models.miml_knn", "Bags": "bagwise.bags._bags"}
                if node.get("__class__") in old:
                    node["__module__"] = old[node["__class__"]]
                for value in node.values():
                    back(value)
            elif isinstance(node, list):
                for value in node:
                    back(value)

        back(schema)
        parts["schema.json"] = json.dumps(schema).encode()
        without_fingerprint(parts)

    rewritten(tmp_path / "m.skops", tmp_path / "old.skops", as_before)
    assert "bagwise.models.miml_knn.MIMLKNN" in names_in(tmp_path / "old.skops")
    again = bagwise.load(tmp_path / "old.skops")
    np.testing.assert_array_equal(again.decision_function(bags), model.decision_function(bags))


def test_models_of_older_versions_are_updated(tmp_path):
    """The baselines once kept a factor in ``_scale``, where they keep a Scaling now."""
    bags, Y = sample_bags()
    model = MIMLKNN(scaling="minmax").fit(bags, Y)
    expected = model.decision_function(bags)
    model._scale = model._scaling.factor
    del model._scaling
    bagwise.save(model, tmp_path / "m.skops")
    np.testing.assert_allclose(bagwise.load(tmp_path / "m.skops").decision_function(bags), expected)
