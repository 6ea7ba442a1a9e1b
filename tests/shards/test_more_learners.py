"""MIML-GP, MM-MIL and MIMLmix on shards: one part is the fit in memory, many agree everywhere."""

import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from learned_bits import same_bits, stopped_fit

from bagwise import Bags, Dataset, ShardedBags, checkpoint, load_dataset, on_cluster
from bagwise.datasets import make_mimlmix_like, make_sub_concepts
from bagwise.models import MIMLGP, MMMIL, MIMLFast, MIMLMix, PooledLogisticRegression

pytestmark = pytest.mark.filterwarnings("ignore")

MIX = {"eta": 1.0, "xi": 0.1, "kappa": 300.0, "nu": 10.0, "alpha_train": 5.0, "n_topics": 3, "max_iter": 5}
LEARNERS = {
    "gp": lambda: MIMLGP(width=[2.0, 3.0], rank=20, label_covariance="scalar", max_iter=2),
    "gp, linear": lambda: MIMLGP("linear", constant=0.1, max_iter=2),
    "gp, drawn landmarks": lambda: MIMLGP(
        width=3.0, factor="nystroem", rank=20, label_covariance="diagonal", max_iter=2, random_state=0
    ),
    "mm_mil": lambda: MMMIL(2, n_init=1, max_iter=2, random_state=0),
    "mm_mil, landmarks": lambda: MMMIL(
        2, kernel="rbf", n_landmarks=15, n_init=3, max_iter=2, random_state=0, gate_penalty=0.5
    ),
    "mimlmix": lambda: MIMLMix(**MIX, random_state=0),
    "pooled": lambda: PooledLogisticRegression(statistics=("mean", "max"), max_iter=3),
    "mimlfast": lambda: MIMLFast(n_components=5, max_iter=2, random_state=0),
}


ON_A_CLUSTER = ("gp, drawn landmarks", "mm_mil", "mimlmix", "pooled", "mimlfast")


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", n_bags=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, digits):
    place = tmp_path_factory.mktemp("shards")
    ShardedBags.write(digits, place / "many", part_bytes=30_000)
    ShardedBags.write(digits, place / "one")
    return place


@pytest.fixture(scope="module")
def streamed(folder):
    """Fits to several streamed parts, made once."""
    shards = ShardedBags.open(folder / "many")
    assert shards.n_parts > 4
    return {name: make().fit(shards) for name, make in LEARNERS.items()}


@pytest.mark.parametrize("name", LEARNERS)
def test_one_part_is_the_fit_in_memory(folder, digits, name):
    in_memory = LEARNERS[name]().fit(digits.bags, digits.Y)
    same_bits(in_memory, LEARNERS[name]().fit(ShardedBags.open(folder / "one")))


@pytest.mark.parametrize("name", LEARNERS)
def test_streamed_and_held_parts_agree(folder, streamed, name):
    shards = ShardedBags.open(folder / "many").in_memory()
    same_bits(streamed[name], LEARNERS[name]().fit(shards))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_fit_that_was_stopped_goes_on(folder, streamed, name, tmp_path, monkeypatch):
    shards = ShardedBags.open(folder / "many")
    stopped_fit(LEARNERS[name](), shards, tmp_path / "fit", monkeypatch, after=3)
    with checkpoint(tmp_path / "fit") as journal:
        assert journal.n_known == 3
        same_bits(LEARNERS[name]().fit(shards), streamed[name])


DRIVER = """
from bagwise import ShardedBags, checkpoint
from bagwise.models import MMMIL
with checkpoint({where!r}):
    MMMIL(2, n_init=1, max_iter=2, random_state=0).fit(ShardedBags.open({shards!r}))
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_driver_goes_on(folder, streamed, tmp_path):
    where, shards = tmp_path / "fit", folder / "many"
    code = DRIVER.format(where=str(where), shards=str(shards))
    process = subprocess.Popen([sys.executable, "-c", code])
    while process.poll() is None and not (where / "000005.npz").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    with checkpoint(where) as journal:
        assert journal.n_known >= 6
        same_bits(LEARNERS["mm_mil"]().fit(ShardedBags.open(shards)), streamed["mm_mil"])


@pytest.mark.skipif(os.name == "nt", reason="as the other tests of clusters")
def test_two_workers_have_the_same_bits(folder, streamed, request):
    pytest.importorskip("distributed")
    request.getfixturevalue("forked_workers")
    shards = ShardedBags.open(folder / "many")
    with on_cluster("local:2"):
        for name in ON_A_CLUSTER:
            same_bits(LEARNERS[name]().fit(shards), streamed[name])


# ---------------------------------------------------------------------- what cannot be a sum


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (MIMLGP(factor="eigen"), "all pairs of bags at once; on shards use factor='auto', 'pivoted'"),
        (MIMLGP(assumption="standard"), "on shards use assumption='collective'"),
        (MIMLGP(cross="exact"), "on shards use cross='auto'"),
        (MIMLGP(mode="paper"), "on shards use mode='fast'"),
        (MMMIL(solver="em"), "on shards use solver='smooth'"),
    ],
)
def test_refusals(folder, model, says):
    with pytest.raises(ValueError, match=says) as refused:
        model.fit(ShardedBags.open(folder / "many"))
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------------- MIML-GP


def test_gp_as_it_is_without_settings(folder, digits):
    shards = ShardedBags.open(folder / "many")
    on_shards, in_memory = MIMLGP().fit(shards), MIMLGP().fit(digits.bags, digits.Y)
    assert on_shards.width_ == in_memory.width_ and on_shards.scaling_ == in_memory.scaling_
    apart = np.abs(on_shards.predict_proba(shards) - in_memory.predict_proba(digits.bags))
    assert apart.mean() < 0.03  # landmarks against all pairs


def test_linear_gp_of_parts_is_the_exact_model(folder, digits):
    """The same likelihood summed in another order: nothing is drawn or left out."""
    shards = ShardedBags.open(folder / "many")
    settings = {"scaling": "minmax", "label_covariance": "diagonal", "tol": 1e-6, "max_iter": 200}
    on_shards = MIMLGP("linear", **settings).fit(shards)
    in_memory = MIMLGP("linear", **settings).fit(digits.bags, digits.Y)
    np.testing.assert_allclose(on_shards.label_covariance_, in_memory.label_covariance_, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(
        on_shards.predict_proba(shards), in_memory.predict_proba(digits.bags), atol=1e-4
    )


def test_gp_by_conjugate_gradients_over_parts(folder, monkeypatch):
    shards = ShardedBags.open(folder / "many")
    settings = {"width": 3.0, "rank": 15, "label_covariance": "identity", "scale": 5.0}
    factored = MIMLGP(**settings).fit(shards)
    monkeypatch.setattr("bagwise.models.gp.fit_mode.DENSE_LIMIT_OF_PARTS", 0)
    monkeypatch.setattr("bagwise.models.gp.fit_mode.DENSE_LIMIT", 0)
    iterated = MIMLGP(**settings).fit(shards)
    np.testing.assert_allclose(iterated.weights_, factored.weights_, rtol=1e-4, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_bits(iterated, MIMLGP(**settings).fit(shards.in_memory()))


def test_gp_features_that_are_too_many_to_keep(folder, streamed, monkeypatch):
    """Made again in every pass, with the same bits."""
    monkeypatch.setattr("bagwise.compute.parts.SMALL", 0.0)
    shards = ShardedBags.open(folder / "many")
    same_bits(LEARNERS["gp, drawn landmarks"]().fit(shards), streamed["gp, drawn landmarks"])


# ---------------------------------------------------------------------- MM-MIL


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    data = make_sub_concepts(n_bags=200, n_labels=2, n_sub=2, cardinality=0.8, noise=1.0, random_state=0)
    place = tmp_path_factory.mktemp("faces") / "s"
    return data, ShardedBags.write(data, place, part_bytes=data.bags.X.nbytes // 5)


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_mm_mil_of_parts_is_as_good_as_in_memory(faces, kernel):
    data, shards = faces
    settings = {"n_clusters": 2, "kernel": kernel, "n_landmarks": 60, "max_iter": 40, "random_state": 0}
    on_shards, in_memory = MMMIL(**settings).fit(shards), MMMIL(**settings).fit(data.bags, data.Y)
    for ours, theirs in zip(on_shards.objective_, in_memory.objective_):
        assert ours[-1] <= theirs[-1] * 1.15 + 0.5  # starts and landmarks are drawn otherwise
    # Eq. (7) that the passes came to is that of the model they gave
    scores = on_shards.decision_function(data.bags)
    losses = np.logaddexp(0.0, np.where(data.Y > 0, -scores, scores)).sum(axis=0)
    for label, history in enumerate(on_shards.objective_):
        assert losses[label] < history[-1]
        if kernel is None:
            scale = data.bags.X.astype(np.float64).std(axis=0)
            weights = [on_shards.expert_coef_[label] * scale, on_shards.gate_coef_[label] * scale]
            penalty = 0.1 * sum(np.square(w).sum() for w in weights)
            np.testing.assert_allclose(losses[label] + penalty, history[-1], rtol=1e-4)


def test_mm_mil_says_what_contradicts_itself(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    X = np.vstack([X, X[:2][::-1]])
    bags = Bags(X, np.arange(0, 43, 2), bag_ids=[f"b{k}" for k in range(21)])
    Y = (np.arange(21) % 2)[:, None]
    Y[20] = 1
    shards = ShardedBags.write(Dataset(bags, Y, label_names=["a"]), tmp_path / "s", part_bytes=200)
    assert shards.n_parts > 3
    with pytest.warns(UserWarning, match="1 bags occur again with other labels .first: bags 'b0' and 'b20'"):
        MMMIL(1, max_iter=1).fit(shards)


# ---------------------------------------------------------------------- MIMLmix


@pytest.fixture(scope="module")
def two_views(tmp_path_factory):
    data = make_mimlmix_like("imageclef", 120, missing=0.3)
    place = tmp_path_factory.mktemp("views") / "s"
    return data, ShardedBags.write(data, place, part_bytes=100_000)


def test_mimlmix_of_parts_with_views_that_are_missing(two_views):
    data, shards = two_views
    assert shards.n_parts > 3
    settings = {**MIX, "max_iter": 100, "tol": 1e-7, "max_inner": 50, "random_state": 0}
    on_shards, in_memory = MIMLMix(**settings).fit(shards), MIMLMix(**settings).fit(data.bags, data.Y)
    # the same optimum: gamma starts cold in every pass, and is kept between passes in memory
    np.testing.assert_allclose(on_shards.elbo_[-1], in_memory.elbo_[-1], rtol=1e-4)
    for view, weight in in_memory.view_weights_.items():
        np.testing.assert_allclose(on_shards.view_weights_[view], weight, rtol=1e-3)
    assert on_shards.view_kinds_ == in_memory.view_kinds_
    agree = on_shards.predict(shards) == in_memory.predict(data.bags)
    assert agree.mean() > 0.99
    scores = on_shards.instance_scores(shards)
    assert {view: len(rows) for view, rows in scores.items()} == {
        view: bags.n_instances for view, bags in data.bags.views.items()
    }


def test_mimlmix_chooses_on_some_bags(two_views):
    data, shards = two_views
    settings = {"eta": "auto", "sets": "threshold", "max_iter": 3, "random_state": 0, "n_topics": "auto"}
    on_shards = MIMLMix(**{**MIX, **settings}).fit(shards)
    in_memory = MIMLMix(**{**MIX, **settings}).fit(data.bags, data.Y)
    assert on_shards.settings_ == in_memory.settings_ and len(on_shards.search_) > 3
    np.testing.assert_allclose(on_shards.threshold_, in_memory.threshold_, rtol=0.05)


def test_mimlmix_leaves_out_bags_without_labels(folder, digits, tmp_path):
    Y = digits.Y.copy()
    Y[::7] = 0
    shards = ShardedBags.write(
        Dataset(digits.bags, Y, label_names=digits.label_names), tmp_path / "s", part_bytes=30_000
    )
    model = MIMLMix(**MIX, unlabelled="skip", random_state=0)
    with pytest.warns(UserWarning, match="18 bags without labels are left out"):
        model.fit(shards)
    assert model.n_bags_seen_ == 102 and len(model.components_) == 10
    assert len(MIMLMix(**MIX, random_state=0).fit(shards).components_) == 11
