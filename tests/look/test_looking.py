"""Looking without a browser: overview, table, one bag, corrections, next."""

import json

import numpy as np
import pytest

import bagwise
from bagwise import Bags, Dataset
from bagwise.datasets import make_digits
from bagwise.errors import DataError
from bagwise.look import Corrections, Session, open_session
from bagwise.models import MIMLKNN, MIMLDummy, SingleInstanceLogisticRegression


@pytest.fixture(scope="module")
def data():
    return make_digits(n_bags=80)


@pytest.fixture(scope="module")
def model(data):
    fitted = SingleInstanceLogisticRegression().fit(data["train"].labelled_bags(), data["train"].Y)
    fitted.label_names_ = data.label_names
    return fitted


@pytest.fixture
def session(data, model, tmp_path):
    kept = Corrections(tmp_path / "corrections.jsonl", "digits", author="ada")
    session = Session(data["test"], model, kept, source={"data": "digits", "model": "m.skops", "where": {}})
    session.finish()
    return session


def test_everything_is_json(session):
    found = [session.overview(), session.table.rows(), session.explain(0), session.curve("3")]
    assert json.loads(json.dumps(found, allow_nan=False))


def test_overview_counts_and_quality(session, data, model):
    test = data["test"]
    chosen, found = model.predict(test.bags), session.overview()
    for k, row in enumerate(found["labels"]):
        assert row["known"] == test.Y[:, k].sum() and row["predicted"] == chosen[:, k].sum()
        hits = (chosen[:, k] & test.Y[:, k]).sum()
        assert row["recall"] == pytest.approx(hits / test.Y[:, k].sum(), abs=1e-4)
        assert row["wrong"] == (chosen[:, k] != test.Y[:, k]).sum()
    P = model.predict_proba(test.bags)
    assert found["calibration"]["error"] == pytest.approx(
        bagwise.metrics.calibration_error(test.Y, P), abs=1e-3
    )
    assert sum(row["count"] for row in found["calibration"]["bins"]) == P.size


def test_sorted_filtered_paged(session, data, model):
    P = model.predict_proba(data["test"].bags)
    rows = session.table.rows(sort="uncertain", down=True, limit=500)["rows"]
    expected = 1 - 2 * np.abs(P - 0.5).min(axis=1)
    assert [row["number"] for row in rows] == np.argsort(-expected.astype(np.float32), kind="stable").tolist()
    wrong = session.table.rows(show="wrong")["rows"]
    assert {row["number"] for row in wrong} == set(
        np.flatnonzero((model.predict(data["test"].bags) != data["test"].Y).any(axis=1))
    )
    page = session.table.rows(offset=5, limit=3)
    assert page["total"] == 24 and [row["number"] for row in page["rows"]] == [5, 6, 7]
    with_3 = session.table.rows(label="3", sort="score", down=True, limit=100)["rows"]
    assert all(3 in row["known"] or 3 in row["chosen"] for row in with_3)
    assert [row["score"] for row in with_3] == sorted((row["score"] for row in with_3), reverse=True)
    assert [row["id"] for row in session.table.rows(q=session.ids[7])["rows"]] == [session.ids[7]]
    for wrong_ask in ({"sort": "magic"}, {"show": "magic"}, {"label": "magic"}):
        with pytest.raises(DataError, match="magic"):
            session.table.rows(**wrong_ask)


def test_one_bag(session, data, model):
    test = data["test"]
    found = session.explain(4)
    labels, P = model.annotate(test.bags[4:5], return_proba=True)
    assert [part["label"] for part in found["parts"]] == labels.tolist()
    np.testing.assert_allclose([part["values"] for part in found["parts"]], P, atol=6e-4)
    a, b = test.bags.offsets[4:6]
    assert [part["known"] for part in found["parts"]] == test.instance_Y[a:b].tolist()
    assert found["view"]["kind"] == "pictures" and len(found["view"]["grey"][0]) == 64
    given = session.explain(4, given=True)
    assert all(test.Y[4, part["label"]] for part in given["parts"])
    for number in (-1, 24, 10**9):
        with pytest.raises(DataError, match="counted from 0"):
            session.explain(number)


def test_curve_is_what_counting_says(session, data, model):
    P, Y = model.predict_proba(data["test"].bags)[:, 3].astype(np.float32), data["test"].Y[:, 3]
    found = session.curve("3")
    for at in (0, 13, 50, 99):
        chosen = np.linspace(0, 1, 101)[at] <= P
        assert found["predicted"][at] == chosen.sum()
        assert found["recall"][at] == pytest.approx((chosen & (Y == 1)).sum() / Y.sum(), abs=1e-4)
        if chosen.any():
            assert found["precision"][at] == pytest.approx(Y[chosen].mean(), abs=1e-4)


def test_corrections_change_what_is_known(session):
    bag = session.ids[2]
    before = session.truth[2].copy()
    absent = int(np.flatnonzero(before == 0)[0])
    entry = session.correct(2, "yes", label=session.names[absent])
    assert session.truth[2, absent] == 1 and entry["before"]["predicted"] in (True, False)
    session.correct(2, "yes", part=0, label="a new label")
    assert session.names[-1] == "a new label" and session.truth[2, -1] == 1
    assert session.table.rows(show="corrected")["rows"][0]["id"] == bag
    assert session.overview()["n_corrected"] == 1
    session.undo()
    session.undo()
    assert (session.truth[2, : len(before)] == before).all() and session.undo() is None
    for wrong in (
        {"part": 99, "answer": "yes", "label": "3"},
        {"answer": "yes", "label": " "},
        {"answer": "perhaps"},
    ):
        with pytest.raises(DataError):
            session.correct(2, **wrong)


def test_corrections_of_another_program_are_seen(session):
    other = Corrections(session.corrections.path, "digits", author="eve")
    other.add(session.ids[1], answer="yes", label="owl")
    assert session.truth[1, session.label("owl")] == 1
    other.add(session.ids[1], answer="no", label="owl")
    session.correct(1, "yes", part=0, label="3")  # reads the other's line on its way
    assert session.truth[1, session.label("owl")] == 0 and session.truth[1, session.label("3")] == 1


def test_next(session):
    assert session.table.next("order", 3) == 4 and session.table.next("order", 23) is None
    first = session.table.rows(sort="uncertain", down=True)["rows"][0]["number"]
    assert session.table.next("uncertainty") == first
    session.see(first)
    second = session.table.next("uncertainty")
    assert second != first
    session.correct(second, "accepted")
    assert session.table.next("uncertainty") not in (first, second)
    assert session.table.next("rarity") is not None
    found = session.table.next("label", label="3")
    assert found in {row["number"] for row in session.table.rows(label="3", limit=100)["rows"]}
    session.seen[:] = True
    assert session.table.next("uncertainty") is None


def test_accepted_bags_without_labels(data, model, tmp_path):
    bare = Dataset(data["test"].bags)
    session = Session(bare, model, Corrections(tmp_path / "c.jsonl", "x"))
    session.finish()
    assert (session.truth == -1).all() and session.overview()["calibration"] is None
    session.correct(0, "accepted")
    assert (session.truth[0] == session.answers.chosen[0]).all()


@pytest.mark.parametrize("cls", [MIMLDummy, MIMLKNN])
def test_models_without_probabilities_of_parts(cls, data, tmp_path):
    model = cls().fit(data["train"].bags, data["train"].Y)
    session = Session(data["test"], model, Corrections(tmp_path / "c.jsonl", "x"))
    session.finish()
    found = session.explain(1)
    assert all(0 <= v <= 1 for part in found["parts"] for v in part["values"])
    assert "label_0" in session.names  # the model knows no names, the data do


def test_without_model_features_and_empty_bags(tmp_path):
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(3, 30)), np.empty((0, 30)), rng.normal(size=(1, 30))])
    session = Session(Dataset(bags, [["a"], ["b"], ["a", "b"]]), None, Corrections(tmp_path / "c.jsonl", "x"))
    view = session.explain(0)["view"]
    assert view["kind"] == "features" and len(view["features"]) == 12 and len(view["points"]) == 3
    assert session.explain(1)["parts"] == [] and session.overview()["model"] is None
    assert session.table.next("rarity") == 0


def test_missing_values_and_models_of_other_data(data, model, tmp_path):
    X = np.random.default_rng(0).normal(size=(6, 20))
    X[0, 0], X[1, 1] = np.nan, np.inf
    odd = Dataset(Bags(X, [0, 3, 6]), [["a"], ["b"]])
    session = Session(odd, None, Corrections(tmp_path / "c.jsonl", "x"))
    view = json.loads(json.dumps(session.explain(0)["view"], allow_nan=False))
    assert any(value is None for row in view["table"] for value in row)
    with pytest.raises(DataError, match="takes 64 features, the data have 20"):
        Session(odd, model, Corrections(tmp_path / "c.jsonl", "x"))


def test_projection_is_pca(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5))
    session = Session(Dataset(Bags(X, [0, 20, 60]), [["a"], ["b"]]), None, Corrections(tmp_path / "c", "x"))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    expected = (U * s)[:20, :2]
    found = np.array(session.explain(0)["view"]["points"])
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=2e-3)
    assert session.explain(0)["view"]["explained"] == pytest.approx((s**2 / (s**2).sum())[:2], abs=1e-3)


def test_open_session_keeps_corrections_beside_the_data(data, tmp_path, monkeypatch):
    file = tmp_path / "d" / "digits.parquet"
    file.parent.mkdir()
    bagwise.write(data["test"], file)
    session = open_session(file)
    session.correct(0, "yes", label="3")
    assert json.loads((file.parent / "corrections.jsonl").read_text())["data"] == "digits.parquet"
    monkeypatch.chdir(tmp_path)
    named = open_session("digits", options={"n_bags": 20}, part="test", author="ada")
    named.correct(0, "no", label="3")
    assert json.loads((tmp_path / "corrections.jsonl").read_text())["author"] == "ada"
