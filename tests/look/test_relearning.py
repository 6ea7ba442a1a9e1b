"""Learning again from corrections, here and in a process of its own."""

import time

import numpy as np
import pytest

import bagwise
from bagwise import Bags, Dataset
from bagwise.errors import BagwiseError
from bagwise.look import Corrections, RelearningProcess, Session, open_session
from bagwise.look.relearning import fit_again, relearn, takes_parts, training_set
from bagwise.models import MIMLDummy, ORedLogisticRegression, SingleInstanceLogisticRegression
from bagwise.preprocessing import OnInstances

pytestmark = pytest.mark.filterwarnings("ignore:stopped after")


def twins(n=40, seed=0):
    """Bags that always carry both labels: which part is which only corrections can tell."""
    rng = np.random.default_rng(seed)
    z = np.tile([0, 1], n)
    X = rng.normal(size=(2 * n, 2)) * 0.3 + np.where(z[:, None] == 0, 1.0, -1.0)
    bags = Bags(X, np.arange(0, 2 * n + 1, 2), bag_ids=[f"b{k}" for k in range(n)])
    return Dataset(bags, [["robin", "wren"]] * n, instance_Y=z), z


def looking(dataset, model, tmp_path, **source):
    model.label_names_ = dataset.label_names
    kept = Corrections(tmp_path / "corrections.jsonl", "twins", author="ada")
    return Session(dataset, model, kept, source={"data": "twins", "model": "m.skops", "where": {}, **source})


@pytest.fixture
def taught(tmp_path):
    data, z = twins()
    session = looking(data, ORedLogisticRegression(max_iter=30).fit(data.bags, data.Y), tmp_path)
    session.finish()
    for number in range(5):
        for part in range(2):
            session.correct(number, "yes", part=part, label=data.label_names[z[2 * number + part]])
    return session


def test_parts_are_clamped(taught, tmp_path):
    data, z = twins()
    stages = []
    found = relearn(taught, tmp_path / "again.skops", step=lambda stage, share: stages.append(stage))
    assert found["corrected"]["after"]["parts"] == [10, 10] and found["learned_from"]["n_parts"] == 10
    assert list(dict.fromkeys(stages)) == ["preparing", "fitting", "scoring"]
    again = bagwise.load(tmp_path / "again.skops")
    assert (again.annotate(data.bags) == z).mean() > 0.95
    assert found["values"].shape == (40, 2) and np.isfinite(found["values"]).all()


def test_training_set_holds_the_corrections(taught):
    taught.correct(7, "no", label="wren")
    taught.correct(8, "none", part=0)
    taught.correct(9, "no", part=1, label="robin")
    taught.correct(9, "unsure", label="wren")
    taught.correct(10, "yes", part=0, label="owl")
    what = training_set(taught)
    names = what.dataset.label_names
    assert names == ("robin", "wren", "owl")
    assert what.dataset.Y[7].tolist() == [1, 0, 0] and what.dataset.Y[9].tolist() == [1, 1, 0]
    assert what.dataset.Y[10].tolist() == [1, 1, 1]
    assert what.known[16].tolist() == [0, 0, 0] and what.known[19].tolist() == [0, -1, -1]
    assert what.known[20].tolist() == [-1, -1, 1] and (what.known[30:] == -1).all()
    # a label that the bag was denied afterwards holds for none of its parts
    taught.correct(0, "no", label=names[0])
    again = training_set(taught)
    assert again.dataset.Y[0].tolist() == [0, 1, 0] and (again.known[:2, 0] != 1).all()


def test_bags_without_labels_and_further_data(tmp_path):
    data, _z = twins()
    model = ORedLogisticRegression(max_iter=30).fit(data.bags, data.Y)
    session = looking(data, model, tmp_path)
    bare = Session(Dataset(data.bags), model, session.corrections)
    bare.finish()
    with pytest.raises(BagwiseError, match="nothing to learn"):
        training_set(bare)
    bare.correct(3, "accepted")
    bare.correct(4, "yes", part=0, label="wren")
    assert len(training_set(bare).dataset) == 2
    more = training_set(bare, twins(seed=1)[0])
    assert len(more.dataset) == 42 and more.known[80 + 2].tolist() == [-1, 1]


@pytest.mark.parametrize("cls", [MIMLDummy, SingleInstanceLogisticRegression])
def test_models_that_cannot_clamp(taught, cls):
    data, _ = twins()
    bags = data.labelled_bags() if cls is SingleInstanceLogisticRegression else data.bags
    model = cls().fit(bags, data.Y)
    fitted = fit_again(model, training_set(taught))
    assert fitted.label_names_ == data.label_names
    words = takes_parts(model)
    assert ("bag of its own" in words) == (cls is MIMLDummy)


def test_pipelines_and_classes(taught):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data, _ = twins()
    pipeline = make_pipeline(OnInstances(StandardScaler()), MIMLDummy()).fit(data.bags, data.Y)
    assert fit_again(pipeline, training_set(taught)).predict(data.bags).shape == (40, 2)
    one = MIMLDummy().fit(data.bags, np.tile([0, 1], 20))
    with pytest.raises(BagwiseError, match="one class per bag"):
        fit_again(one, training_set(taught))


def wait(relearning, until=("done", "failed"), seconds=120):
    end = time.monotonic() + seconds
    while relearning.state()["stage"] not in until and time.monotonic() < end:
        time.sleep(0.05)
    return relearning.state()


def test_child_learns_and_its_model_is_used(tmp_path):
    data, _z = twins()
    bagwise.write(data, tmp_path / "twins.parquet")
    model = MIMLDummy().fit(data.bags, data.Y)
    model.label_names_ = data.label_names
    bagwise.save(model, tmp_path / "m.skops")
    session = open_session(tmp_path / "twins.parquet", tmp_path / "m.skops", author="ada")
    session.finish()
    session.correct(0, "no", label="wren")
    relearning = RelearningProcess(session)
    with pytest.raises(BagwiseError, match="learn again first"):
        relearning.use()
    relearning.start()
    with pytest.raises(BagwiseError, match="already"):
        relearning.start()
    state = wait(relearning)
    assert state["stage"] == "done", state["error"]
    assert state["result"]["learned_from"]["n_corrected"] == 1
    assert relearning.use() == str(tmp_path / "m.again.skops") and session.model_version == 1
    assert session.corrections.model == "m.again.skops" and relearning.state()["stage"] == "idle"
    assert bagwise.load(tmp_path / "m.again.skops").predict(data.bags).shape == (40, 2)
    (tmp_path / "twins.parquet").unlink()
    relearning.start()  # its data are gone: it says so
    assert "twins.parquet" in wait(relearning)["error"]
    relearning.start()
    relearning.stop()
    assert relearning.state()["stage"] == "idle"
    relearning.close()
