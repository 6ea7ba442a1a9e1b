"""Labels, weights and groups with an index of bag ids: matched by id, never by position in silence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from bagwise import Bags, Dataset, MultiViewBags
from bagwise.bags.labels import in_bag_order
from bagwise.errors import DataError
from bagwise.models import MIMLDummy, ORedLogisticRegression

IDS = ["c", "a", "d", "b"]
TRUTH = {"a": [1, 0], "b": [1, 1], "c": [0, 1], "d": [0, 0]}


def named(ids=IDS):
    return Bags.from_list([np.full((2, 1), float(k)) for k in range(len(ids))], bag_ids=ids)


def frame(order="abcd"):
    return pd.DataFrame([TRUTH[i] for i in order], index=list(order), columns=["robin", "wren"])


def expected(ids=IDS):
    return [TRUTH[i] for i in ids]


def test_a_data_set_matches_by_id():
    assert Dataset(named(), frame()).Y.tolist() == expected()
    assert Dataset(named(), frame("dbca")).Y.tolist() == expected()
    views = MultiViewBags({"x": named(), "y": Bags.from_list([np.ones((1, 1))] * 4)})
    assert Dataset(views, frame()).Y.tolist() == expected()
    sets = pd.Series({"a": ["robin"], "b": ["robin", "wren"], "c": ["wren"], "d": []})
    assert Dataset(named(), sets, ["robin", "wren"]).Y.tolist() == expected()
    assert Dataset(named(), sets.to_dict(), ["robin", "wren"]).Y.tolist() == expected()
    groups = pd.Series([1, 2, 3, 4], index=list("abcd"))
    assert Dataset(named(), frame(), groups=groups).groups.tolist() == [3, 1, 4, 2]


def test_fit_annotate_score_and_weights_match_by_id():
    rng = np.random.default_rng(0)
    ids = [f"r{k}" for k in rng.permutation(60)]
    Y = pd.DataFrame(np.eye(2, dtype=int)[np.arange(60) % 2], index=sorted(ids), columns=["robin", "wren"])
    X = [Y.loc[i].to_numpy() * 4.0 + rng.normal(size=(3, 2)) for i in ids]
    bags = Bags.from_list(X, bag_ids=ids)
    model = ORedLogisticRegression().fit(bags, Y)
    by_hand = ORedLogisticRegression().fit(bags, Y.loc[ids])
    np.testing.assert_array_equal(model.decision_function(bags), by_hand.decision_function(bags))
    assert model.score(bags, Y) == model.score(bags, Y.loc[ids].to_numpy()) > 0.9
    assert model.score(bags, Y[["wren", "robin"]]) == model.score(bags, Y)
    np.testing.assert_array_equal(model.annotate(bags, Y), model.annotate(bags, Y.loc[ids].to_numpy()))
    weights = pd.Series(np.arange(60) + 1.0, index=sorted(ids))
    one = ORedLogisticRegression().fit(bags, Y, sample_weight=weights)
    two = ORedLogisticRegression().fit(bags, Y, sample_weight=weights.loc[ids].to_numpy())
    np.testing.assert_array_equal(one.decision_function(bags), two.decision_function(bags))
    with pytest.raises(DataError, match="no sample_weight for bag"):
        ORedLogisticRegression().fit(bags, Y, sample_weight=weights.iloc[1:])
    with pytest.raises(DataError, match="no labels for bag"):
        model.annotate(bags, Y.iloc[1:])


def test_one_class_per_bag_matches_by_id():
    y = pd.Series(["x", "y", "x", "y"], index=list("abcd"))
    model = MIMLDummy().fit(named(), y)
    assert model.score(named(), y) == model.score(named(), y.loc[IDS].to_numpy())
    assert in_bag_order(y, named()).tolist() == y.loc[IDS].tolist()


@pytest.mark.parametrize(
    ("Y", "words"),
    [
        (frame("abc"), "no labels for bag 'd'"),
        (frame("abca"), "bag 'a' has two rows of labels"),
        (frame("abcd").rename(index={"d": "e"}), "no labels for bag 'd'"),
        (pd.concat([frame(), frame().rename(index=str.upper)]), "a row for 'A', which is not among the bags"),
    ],
)
def test_missing_doubled_and_foreign_ids_are_named(Y, words):
    with pytest.raises(DataError, match=words):
        Dataset(named(), Y)
    with pytest.raises(DataError, match=words):
        MIMLDummy().fit(named(), Y)


def test_what_goes_by_position():
    plain = Bags.from_list([np.ones((1, 1))] * 4)
    for Y in (frame().reset_index(drop=True), frame()):
        assert Dataset(plain, Y).Y.tolist() == expected("abcd")  # bags without ids
    assert Dataset(named(), frame().reset_index(drop=True)).Y.tolist() == expected("abcd")  # default index
    cut = frame().reset_index(drop=True).iloc[[3, 1]]
    assert Dataset(named()[[3, 1]], cut).Y.tolist() == expected("db")  # a part of a default index
    numbers = pd.DataFrame(np.eye(2, dtype=int), index=[3, 2])
    assert Dataset(plain[[2, 3]], numbers).Y.tolist() == [[0, 1], [1, 0]]  # both know their places
    assert Dataset(plain[[2, 3]], numbers.reset_index(drop=True)).Y.tolist() == [[1, 0], [0, 1]]


def test_numbers_that_could_be_either_are_refused():
    bags = named([2, 0, 1])
    with pytest.raises(DataError, match="default index 0 to 2"):
        Dataset(bags, pd.DataFrame(np.eye(3, dtype=int)))
    by_id = pd.DataFrame(np.eye(3, dtype=int), index=[0, 1, 2])
    assert Dataset(bags, by_id).Y.argmax(axis=1).tolist() == [2, 0, 1]
    with pytest.raises(DataError, match="holds numbers"):
        Dataset(named(["2", "0", "1"]), pd.DataFrame(np.eye(3, dtype=int), index=[1, 2, 0]))


@pytest.mark.parametrize(
    ("Y", "words"),
    [
        (frame().rename_axis("bag_id").reset_index(), r"for label 'bag_id'.*set_index\('bag_id'\)"),
        (pd.DataFrame({"rec_id": [4, 5, 6, 7], "wren": [0, 1, 0, 1]}), r"set_index\('rec_id'\)"),
        (pd.DataFrame({"species": ["wren"] * 4}), r"frame\['species'\]"),
        (pd.DataFrame({"wren": [0, 1, 2, 1]}), "has the value 2 for label 'wren'; expected 0 or 1$"),
    ],
)
def test_frames_that_are_no_matrix_get_advice(Y, words):
    with pytest.raises(DataError, match=words):
        Dataset(named(), Y)


def test_cross_validation_keeps_bags_and_labels_together():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 40)
    bags = Bags.from_list([np.full((2, 1), 3.0 * v) for v in y], bag_ids=[f"b{k}" for k in range(40)])
    for Y in (pd.DataFrame({"wren": y}), pd.DataFrame({"wren": y}, index=bags.bag_ids)):
        assert cross_val_score(ORedLogisticRegression(), bags, Y, cv=3).mean() > 0.9


def test_views_with_and_without_names_are_cut():
    views = MultiViewBags({"a": named(), "b": Bags.from_list([np.full((1, 2), k) for k in range(4)])})
    cut = views[[2, 0]]
    assert cut.bag_ids.tolist() == cut["b"].bag_ids.tolist() == ["d", "c"]
    assert cut["b"].X[:, 0].tolist() == [2, 0]
    assert views[1:3]["a"].bag_ids.tolist() == ["a", "d"]
    joined = MultiViewBags({"a": named()[[2, 0]], "b": Bags.from_list([np.ones((1, 2))] * 4)[[2, 0]]})
    assert joined["b"].bag_ids.tolist() == ["d", "c"]


def test_a_3d_array_is_bags_of_equal_size():
    X = np.random.default_rng(0).normal(size=(6, 3, 2))
    assert Bags.from_list(X).equals(Bags.from_list(list(X)))
    Y = [[1, 0], [0, 1]] * 3
    model = MIMLDummy().fit(X, Y)
    assert model.predict(X).shape == (6, 2)
    assert model.instance_scores(X).shape == (18, 2)


@pytest.mark.parametrize("Y", [np.zeros((4, 0)), Dataset(named()).Y])
def test_no_labels_are_refused_in_fit(Y):
    with pytest.raises(DataError, match="no labels to learn from"):
        MIMLDummy().fit(named(), Y)
