"""Actions: data by name, labels by name, tables, and models that were not made by `fit`."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import refuses, run
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise
from bagwise import Bags, Dataset, actions, all_estimators
from bagwise.actions import verbs
from bagwise.actions.data import align_instance_labels, align_labels, check_target
from bagwise.actions.running import runs
from bagwise.base import Traits
from bagwise.datasets import make_multi_view
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import label_names
from bagwise.metrics import evaluate, instance_accuracy
from bagwise.models import MIMLDummy, SingleInstanceLogisticRegression
from bagwise.preprocessing import OnInstances
from bagwise.registry import get_estimator
from bagwise.report import as_json

BIRDS = ("gull", "robin", "wren")


def birds(names=BIRDS, n_bags=40, seed=0, **about):
    """Each instance sits near the corner of its label; labels in the order of ``names``."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    kind = rng.integers(0, 3, sizes.sum())
    X = np.eye(3)[kind] + 0.1 * rng.normal(size=(len(kind), 3))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bags = Bags(
        X, offsets, bag_ids=[f"b{i}" for i in range(n_bags)], instance_info={"time": np.arange(len(X))}
    )
    sets = [[BIRDS[k] for k in kind[a:b]] for a, b in zip(offsets[:-1], offsets[1:])]
    return Dataset(bags, sets, names, instance_Y=[BIRDS[k] for k in kind], **about)


@pytest.fixture
def stored(tmp_path):
    bagwise.write(birds(), tmp_path / "birds.parquet")
    actions.fit(tmp_path / "birds.parquet", "SingleInstanceLogisticRegression", {}, tmp_path / "model.skops")
    return tmp_path


def test_fit_remembers_names_and_returns_plain_facts(stored):
    model = bagwise.load(stored / "model.skops")
    assert model.label_names_ == BIRDS
    done = actions.fit(stored / "birds.parquet", "MIMLDummy")
    assert done["out"] is None and done["labels"] == list(BIRDS) and done["seconds"] >= 0
    json.loads(as_json(done))


def test_score_matches_labels_by_name(stored):
    """The order of the labels in the file changes nothing, down to the measures of instances."""
    new = birds(seed=1)
    bagwise.write(new, stored / "new.parquet")
    bagwise.write(birds(("wren", "gull", "robin"), seed=1), stored / "shuffled.parquet")
    plain = actions.score(stored / "model.skops", stored / "new.parquet")["measures"]
    shuffled = actions.score(stored / "model.skops", stored / "shuffled.parquet")["measures"]
    assert shuffled == pytest.approx(plain, nan_ok=True)

    model = bagwise.load(stored / "model.skops")
    scores = model.decision_function(new.bags)
    expected = evaluate(
        new.Y, scores, scores > 0, instance_Y=new.instance_Y, instance_predictions=model.annotate(new.bags),
        instance_scores=model.instance_scores(new.bags), offsets=new.bags.offsets,
    )  # fmt: skip
    expected["instance_accuracy_given_labels"] = instance_accuracy(
        new.instance_Y, model.annotate(new.bags, new.Y)
    )
    assert plain == pytest.approx(expected)


def test_fewer_and_more_labels_are_stated(stored):
    new = birds(("crow", *BIRDS), seed=2)
    Y = new.Y.copy()
    Y[0, 0] = 1  # a bag with a label that the model never learned
    names = ("crow", "gull", "robin", "wren")
    bagwise.write(Dataset(new.bags, Y, names), stored / "more.parquet")
    found = actions.score(stored / "model.skops", stored / "more.parquet")
    assert found["not_learned"] == ["crow"] and found["not_in_data"] == []
    with pytest.raises(DataError, match="unknown label 'crow'"):
        actions.annotate(stored / "model.skops", stored / "more.parquet", stored / "x.csv", use_labels=True)
    assert not (stored / "x.csv").exists()

    few = [i for i in range(len(new)) if not new.Y[i, 1]]
    cut = new[few]
    bagwise.write(Dataset(cut.bags, cut.Y[:, 2:], BIRDS[1:]), stored / "fewer.parquet")
    found = actions.score(stored / "model.skops", stored / "fewer.parquet")
    assert found["not_in_data"] == ["gull"] and "instance_accuracy" not in found["measures"]
    done = actions.annotate(
        stored / "model.skops", stored / "fewer.parquet", stored / "y.parquet", use_labels=True
    )
    assert done["rows"] == cut.bags.n_instances
    assert "gull" not in pq.read_table(stored / "y.parquet").column("label").to_pylist()


def test_align_labels_needs_one_in_common():
    data = birds()
    Y, unknown, missing = align_labels(data, ("wren", "gull"))
    assert np.array_equal(Y, data.Y[:, [2, 0]]) and unknown == ["robin"] and missing == []
    assert align_labels(birds(("crow", *BIRDS)), BIRDS)[1] == []  # a label that no bag carries does no harm
    with pytest.raises(DataError, match="no label in common"):
        align_labels(data, ("crow",))
    truth = align_instance_labels(data, ("wren", "gull"))
    assert np.array_equal(truth, np.array([1, -1, 0])[data.instance_Y])


def test_blocks_cover_all_bags_and_change_nothing(stored, monkeypatch):
    new = birds(seed=3, n_bags=57)
    bagwise.write(new, stored / "new.parquet")
    tables = {}
    for size in (7, 200_000):
        monkeypatch.setattr("bagwise.actions.running._BLOCK", size)
        cuts = runs(new.bags)
        assert [a for a, _ in cuts] == [0] + [b for _, b in cuts][:-1] and cuts[-1][1] == 57
        actions.predict(stored / "model.skops", stored / "new.parquet", stored / "p.parquet")
        actions.annotate(stored / "model.skops", stored / "new.parquet", stored / "a.parquet")
        tables[size] = [pq.read_table(stored / name).to_pandas() for name in ("p.parquet", "a.parquet")]
    for small, whole in zip(*tables.values()):
        assert list(small["bag_id"]) == list(whole["bag_id"])
        numbers = small.select_dtypes("number").columns
        np.testing.assert_allclose(small[numbers], whole[numbers], rtol=1e-10)
    assert list(small["time"]) == new.bags.instance_info["time"].tolist()


def test_pipeline_saved_by_hand(tmp_path):
    """A model that nobody told the names of its labels goes by those of data without names."""
    data = birds()
    pipeline = make_pipeline(OnInstances(StandardScaler()), MIMLDummy()).fit(data.bags, data.Y)
    bagwise.save(pipeline, tmp_path / "p.skops")
    bagwise.write(Dataset(data.bags, data.Y), tmp_path / "bare.npz")
    assert label_names(pipeline) == ("label_0", "label_1", "label_2")
    found = actions.score(tmp_path / "p.skops", tmp_path / "bare.npz")
    assert found["model"] == "MIMLDummy" and found["not_in_data"] == []
    assert actions.info(tmp_path / "p.skops")["labels"] == ["label_0", "label_1", "label_2"]
    assert actions.annotate(tmp_path / "p.skops", tmp_path / "bare.npz", tmp_path / "a.csv", proba=True)[
        "rows"
    ]


@pytest.mark.parametrize("classes", [["no", "yes"], ["ash", "beech", "oak"]])
def test_models_of_one_class_per_bag(tmp_path, classes):
    data = birds()
    y = np.array(classes)[np.arange(len(data)) % len(classes)]
    model = MIMLDummy().fit(data.bags, y)
    bagwise.save(model, tmp_path / "m.skops")
    bagwise.write(data, tmp_path / "d.npz")
    actions.predict(tmp_path / "m.skops", tmp_path / "d.npz", tmp_path / "p.parquet")
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    predicted = model.predict(data.bags)
    if len(classes) == 2:
        assert [row["labels"] for row in rows] == [["yes"] if c == "yes" else [] for c in predicted]
    else:
        assert [row["labels"] for row in rows] == [[c] for c in predicted]


def test_refuses_probabilities_of_a_model_without(stored, monkeypatch):
    from bagwise.base import Traits

    monkeypatch.setattr(SingleInstanceLogisticRegression, "traits", Traits(instance_labels=True))
    with pytest.raises(BagwiseError, match="no probabilities"):
        actions.annotate(stored / "model.skops", stored / "birds.parquet", stored / "x.csv", proba=True)


def test_target_is_checked_before_the_work(stored):
    with pytest.raises(IsADirectoryError):
        check_target(stored)
    with pytest.raises(NotADirectoryError):
        check_target(stored / "model.skops" / "x.csv")
    check_target(stored / "not" / "yet" / "there.csv")
    with pytest.raises(DataError, match="suffix"):
        actions.predict(stored / "model.skops", stored / "birds.parquet", stored / "x.txt")


def test_a_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert len(actions.open_data("digits", options={"n_bags": 10})) == 10
    with pytest.raises(DataError):
        actions.open_data("./digits")


def test_a_fault_inside_a_model_is_no_user_mistake(monkeypatch):
    def broken(self, X, y, sample_weight=None):
        raise TypeError("inner")

    monkeypatch.setattr(MIMLDummy, "fit", broken)
    with pytest.raises(TypeError, match="inner"):
        actions.train(birds(), "MIMLDummy")


def test_convert_and_info_agree(stored):
    actions.convert(stored / "birds.parquet", stored / "birds.csv")
    before, after = actions.info(stored / "birds.parquet"), actions.info(stored / "birds.csv")
    for key in ("n_bags", "n_instances", "labels", "cardinality"):
        assert before[key] == after[key]
    assert before["views"][0]["facts"] == ["time"]


def test_several_views(tmp_path):
    data = make_multi_view(n_bags=30)
    bagwise.write(data, tmp_path / "v.parquet")
    model = actions.train(data, "MIMLMix", get_estimator("MIMLMix")._test_params())
    bagwise.save(model, tmp_path / "m.skops")
    files = (tmp_path / "m.skops", tmp_path / "v.parquet")
    assert actions.score(*files)["n_bags"] == 30
    assert actions.predict(*files, tmp_path / "p.csv")["rows"] == 30
    assert actions.annotate(*files, tmp_path / "a.parquet", use_labels=True)["rows"] == data.bags.n_instances
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    known = dict(zip(data.bags.bag_ids.tolist(), data.label_sets))
    assert {row["view"] for row in rows} == set(data.bags.view_names)
    assert all(row["label"] is None or row["label"] in known[row["bag_id"]] for row in rows)
    actions.annotate(*files, tmp_path / "a.csv", proba=True)


def test_the_list_says_what_the_classes_say():
    """It is read from their source, so that it comes at once; here both are compared."""
    rows = {row["name"]: row for row in actions.list_all()["estimators"]}
    assert set(rows) == set(dict(all_estimators()))
    for name, cls in all_estimators():
        assert rows[name]["summary"] == cls.__doc__.strip().partition("\n")[0].rstrip(".")
        own = next(vars(owner)["traits"] for owner in cls.__mro__ if "traits" in vars(owner))
        assert rows[name]["traits"] == (asdict(own) if isinstance(own, Traits) else None)


def test_listing_needs_no_model():
    code = "import sys, bagwise.actions as a; a.list_all(); print([m for m in sys.modules if m in %r])"
    heavy = ("sklearn", "numba", "matplotlib", "bagwise.models")
    done = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_failure_leaves_the_older_file(digits_for_commands, tmp_path, monkeypatch):
    out = tmp_path / "found.csv"
    out.write_text("older")
    calls = []

    def full(*args):
        calls.append(args)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return original(*args)

    original = verbs.prediction_table
    monkeypatch.setattr(verbs, "prediction_table", full)
    monkeypatch.setattr("bagwise.actions.running._BLOCK", 20)
    refuses(
        run("predict", digits_for_commands / "dummy.skops", digits_for_commands / "test.parquet", "-o", out),
        "No space left",
    )
    assert len(calls) == 2 and out.read_text() == "older" and os.listdir(tmp_path) == ["found.csv"]


def test_shards_and_memory_are_answered_alike(stored):
    """One way over blocks: the same rows wherever the bags lie, in every form that can be written."""
    actions.convert(stored / "birds.parquet", f"{stored}/shards/", part_bytes=600)
    found = {}
    for name in ("birds.parquet", "shards"):
        model, data, out = stored / "model.skops", stored / name, stored / f"of_{name}"
        actions.predict(model, data, f"{out}.json")
        parts = actions.predict(model, data, f"{out}/")["rows"], sorted(os.listdir(out))
        actions.annotate(model, data, f"{out}.parquet", use_labels=True)
        measures = actions.score(model, data)["measures"]
        found[name] = (
            json.loads((stored / f"of_{name}.json").read_text()),
            measures,
            pq.read_table(out).sort_by("bag_id"),
        )
        assert parts[0] == 40 and parts[1][0] == "part-00000.parquet"
        assert len(parts[1]) == (1 if name == "birds.parquet" else bagwise.ShardedBags.open(data).n_parts)
    (rows, measures, table), (other_rows, other_measures, other_table) = found.values()
    assert [row["labels"] for row in rows] == [row["labels"] for row in other_rows]
    for row, other in zip(rows, other_rows):
        assert row["scores"] == pytest.approx(other["scores"])
    assert {name: measures[name] for name in other_measures} == pytest.approx(other_measures, nan_ok=True)
    assert table.column_names == other_table.column_names and table.num_rows == other_table.num_rows == 40


def test_a_cluster_is_for_shards(stored):
    for verb, more in ((actions.fit, ["MIMLDummy"]), (actions.score, [])):
        first = [stored / "birds.parquet"] if more else [stored / "model.skops", stored / "birds.parquet"]
        with pytest.raises(BagwiseError, match="are for shards"):
            verb(*first, *more, running={"cluster": "local:2"})
