"""Model files: whole or not at all, and never able to run code."""

import json
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
import skops.io
from scipy.special import expit
from sklearn.base import clone
from sklearn.cluster import Birch
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import all_estimators as all_of_sklearn
from sklearn.utils._test_common.instance_generator import _construct_instances
from sklearn.utils.estimator_checks import _enforce_estimator_tags_X, _enforce_estimator_tags_y

import bagwise
from bagwise import Bags, all_estimators
from bagwise.checks.estimator_checks import sample_bags
from bagwise.datasets import make_multi_view
from bagwise.errors import BagwiseError, DataError, UnsafeFileError
from bagwise.metrics import get_scorer
from bagwise.model_selection import LabelThresholds, MultilabelKFold
from bagwise.models import (
    MIMLKNN,
    MIMLDummy,
    MIMLMix,
    ORedLogisticRegression,
    SingleInstanceLogisticRegression,
)
from bagwise.persistence import model_facts
from bagwise.preprocessing import OnInstances


@pytest.mark.parametrize("cls", [c for _, c in all_estimators()], ids=lambda c: c.__name__)
def test_every_estimator_comes_back_the_same(cls, tmp_path):
    for package in cls.traits.requires:
        pytest.importorskip(package)
    bags, Y = sample_bags()
    model = cls(**cls._test_params()).fit(bags, Y)
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


# ---------------------------------------------------------------------- everything of scikit-learn


def rewritten(path, target, change, compression=zipfile.ZIP_STORED):
    """Copy a model file, its parts changed by ``change(parts)`` in place."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target


def without_fingerprint(parts):
    """As a file of before fingerprints, or of someone who knows how to make them."""
    facts = json.loads(parts["bagwise.json"])
    facts.pop("sha256", None)
    parts["bagwise.json"] = json.dumps(facts).encode()


TEXT = {"CountVectorizer", "HashingVectorizer", "TfidfVectorizer"}
TARGETS = {"LabelBinarizer", "LabelEncoder", "MultiLabelBinarizer"}
# nodes linked in circles (the save says so), or takes neither a table nor text
LEFT_OUT = {"Birch", "DictVectorizer", "FeatureHasher", "FrozenEstimator", "PatchExtractor", "SparseCoder"}


def fitted(name, cls):
    """An estimator of scikit-learn as its own tests make it, fitted, and what it takes."""
    rng = np.random.RandomState(0)
    model = clone(next(iter(_construct_instances(cls))))
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=0)
    if name in TEXT:
        return model.fit(["a wren sings", "a gull and a wren"]), ["a gull"]
    if name in TARGETS:
        targets = [["wren"], ["gull", "wren"]] if name == "MultiLabelBinarizer" else np.arange(30) % 3
        return model.fit(targets), targets
    X = _enforce_estimator_tags_X(model, rng.normal(size=(30, 4)))
    return model.fit(X, _enforce_estimator_tags_y(model, np.arange(30) % 2)), X


KINDS = [(name, cls) for name, cls in all_of_sklearn() if name not in LEFT_OUT]


@pytest.mark.parametrize(("name", "cls"), KINDS, ids=[name for name, _ in KINDS])
def test_every_estimator_of_scikit_learn(name, cls, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, X = fitted(name, cls)
        bagwise.save(model, tmp_path / "m.skops")
        again = bagwise.load(tmp_path / "m.skops")
        for method in ("predict", "transform"):
            if hasattr(model, method):
                found, expected = getattr(again, method)(X), getattr(model, method)(X)
                if hasattr(expected, "toarray"):
                    found, expected = found.toarray(), expected.toarray()
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_what_cannot_be_saved_says_so(tmp_path):
    with pytest.raises(DataError, match="cannot save Birch"):
        bagwise.save(Birch().fit(np.eye(3)), tmp_path / "m.skops")
    assert not list(tmp_path.iterdir())


def test_the_search_of_the_docs(tmp_path):
    bags, Y = sample_bags()
    search = GridSearchCV(
        make_pipeline(OnInstances(StandardScaler()), ORedLogisticRegression()),
        {"oredlogisticregression__alpha": [1.0, 10.0]},
        scoring=get_scorer("neg_ranking_loss"),
        cv=MultilabelKFold(2, random_state=0),
    ).fit(bags, Y)
    bagwise.save(search, tmp_path / "m.skops")
    again = bagwise.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.predict(bags), search.predict(bags))
    assert again.score(bags, Y) == search.score(bags, Y)


def test_functions_of_numpy_scipy_and_sklearn(tmp_path):
    bags, Y = sample_bags()
    for function in (np.tanh, expit, np.nan_to_num):
        model = make_pipeline(OnInstances(FunctionTransformer(function)), MIMLDummy()).fit(bags, Y)
        bagwise.save(model, tmp_path / "m.skops")
        np.testing.assert_array_equal(bagwise.load(tmp_path / "m.skops").predict(bags), model.predict(bags))
    scorer = make_scorer(f1_score, average="macro")
    search = GridSearchCV(MIMLDummy(), {}, scoring=scorer, cv=2).fit(bags, Y)
    bagwise.save(search, tmp_path / "m.skops")
    assert bagwise.load(tmp_path / "m.skops").best_score_ == search.best_score_
    with pytest.raises(UnsafeFileError, match=r"numpy.*fromfile|numpy.*load"):
        bagwise.save(FunctionTransformer(np.load), tmp_path / "m.skops")


def test_several_views_come_back(tmp_path):
    data = make_multi_view(n_bags=40, random_state=0)
    model = MIMLMix(max_iter=5, random_state=0).fit(data.bags, data.Y)
    bagwise.save(model, tmp_path / "m.skops")
    again = bagwise.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.decision_function(data.bags), model.decision_function(data.bags))


# ---------------------------------------------------------------------- names


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


# ---------------------------------------------------------------------- hostile files

LIMITED = """
import resource, sys
import bagwise
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    bagwise.load(sys.argv[1])
except bagwise.errors.DataError as error:
    print(error)
"""


@pytest.fixture
def saved(tmp_path):
    bags, Y = sample_bags()
    bagwise.save(MIMLKNN().fit(bags, Y), tmp_path / "m.skops")
    return tmp_path / "m.skops"


def test_a_small_file_may_not_take_all_memory(saved, tmp_path):
    def blow_up(parts):
        name = next(name for name in parts if name.endswith(".npy"))
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (75000000,), }"
        header = header.ljust(117) + b"\n"
        parts[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(600_000_000)
        without_fingerprint(parts)

    bomb = rewritten(saved, tmp_path / "bomb.skops", blow_up, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 2_000_000
    command = [sys.executable, "-c", LIMITED, str(bomb)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "would take 0.6 GB of memory" in done.stdout and len(done.stdout.splitlines()) == 1


def test_an_array_must_hold_what_it_says(saved, tmp_path):
    def lie(parts):
        name = next(name for name in parts if name.endswith(".npy"))
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }".ljust(117) + b"\n"
        parts[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)
        without_fingerprint(parts)

    with pytest.raises(DataError, match="holds 8 bytes"):
        bagwise.load(rewritten(saved, tmp_path / "lie.skops", lie))


def test_long_descriptions_are_refused(saved, tmp_path):
    def fill(parts):
        parts["schema.json"] = b"[" + b"[]," * 8_000_000 + b"[]]"

    with pytest.raises(DataError, match=r"schema.json is larger"):
        bagwise.load(rewritten(saved, tmp_path / "long.skops", fill, zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize("keep", [True, False])
def test_wrong_shapes_are_noticed(saved, tmp_path, keep):
    """By the fingerprint, and where somebody made a new one, by an answer."""

    def reshape(parts):
        schema = json.loads(parts["schema.json"])
        coef = schema["content"]["content"]["coef_"]["file"]
        from io import BytesIO

        array = np.load(BytesIO(parts[coef]))
        buffer = BytesIO()
        np.save(buffer, array[:, :-1] if array.ndim == 2 else array[:-1])
        parts[coef] = buffer.getvalue()
        if not keep:
            without_fingerprint(parts)

    message = "not those that were saved" if keep else "do not fit together"
    with pytest.raises(DataError, match=message):
        bagwise.load(rewritten(saved, tmp_path / "wrong.skops", reshape))


@pytest.mark.parametrize(
    "facts",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b"[1, 2]",
        b'"text"',
        b'{"versions": [1]}',
        b'{"versions": {"bagwise": {"a": 1}}}',
        b"{",
        b"\xff\xfe",
    ],
)
def test_odd_facts_are_one_line(saved, tmp_path, facts):
    odd = rewritten(saved, tmp_path / "odd.skops", lambda parts: parts.update({"bagwise.json": facts}))
    for read in (bagwise.load, model_facts):
        with pytest.raises(DataError, match=r"bagwise\.json") as caught:
            read(odd)
        assert len(str(caught.value).splitlines()) == 1 and "odd.skops" in str(caught.value)


def test_other_versions_are_warned_of(saved, tmp_path):
    def older(parts):
        facts = json.loads(parts["bagwise.json"])
        facts["versions"] |= {"scikit-learn": "1.2.3", "bagwise": "0.0.1"}
        parts["bagwise.json"] = json.dumps(facts).encode()

    with pytest.warns(UserWarning, match=r"bagwise 0\.0\.1 .* and scikit-learn 1\.2\.3"):
        bagwise.load(rewritten(saved, tmp_path / "old.skops", older))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bagwise.load(saved)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.skops")
    for name in ("pipe.skops", "."):
        with pytest.raises(DataError, match="not a model file"):
            bagwise.load(tmp_path / name)


def spoiled_arrays(path, target, change):
    """The same model with every array changed by ``change``, without a fingerprint."""

    def spoil(parts):
        from io import BytesIO

        for name in parts:
            if name.endswith(".npy"):
                array = np.load(BytesIO(parts[name]))
                changed = change(array)
                if changed is not None:
                    buffer = BytesIO()
                    np.save(buffer, changed)
                    parts[name] = buffer.getvalue()
        without_fingerprint(parts)

    return rewritten(path, target, spoil)


def test_trees_that_lead_out_of_their_memory_are_refused(tmp_path):
    X, y = make_classification(80, 5, random_state=0)

    def far_nodes(array):
        if array.dtype.names and "left_child" in array.dtype.names:
            array["left_child"][0] = 10**6
        elif array.dtype.names and "left" in array.dtype.names:
            array["left"][0] = 10**6
        else:
            return None
        return array

    def far_rows(array):
        return array + 10**6 if array.dtype == np.intp and array.ndim == 1 and len(array) == 80 else None

    for model, change in (
        (RandomForestClassifier(3, random_state=0), far_nodes),
        (HistGradientBoostingClassifier(max_iter=3), far_nodes),
        (KNeighborsClassifier(algorithm="kd_tree"), far_rows),
    ):
        bagwise.save(model.fit(X, y), tmp_path / "m.skops")
        np.testing.assert_array_equal(bagwise.load(tmp_path / "m.skops").predict(X), model.predict(X))
        with pytest.raises(DataError, match="that it lacks"):
            bagwise.load(spoiled_arrays(tmp_path / "m.skops", tmp_path / "bad.skops", change))


def test_bags_and_sparse_matrices_inside_are_checked(tmp_path):
    from scipy import sparse

    bags, Y = sample_bags()
    thin = Bags(sparse.csr_array(bags.X), bags.offsets)
    path = tmp_path / "m.skops"
    bagwise.save(MIMLKNN().fit(bags, Y), path)

    def far(array):
        # offsets begin at 0 and end at the number of instances
        ends = (
            array.ndim == 1 and array.dtype == np.int64 and len(array) > 2 and array[-1] == bags.n_instances
        )
        return np.append(array[:-1], array[-1] + 1000) if ends else None

    with pytest.raises(DataError, match="fit together"):
        bagwise.load(spoiled_arrays(path, tmp_path / "bad.skops", far))
    bagwise.save(MIMLKNN().fit(thin, Y), path)
    bagwise.load(path)


def test_parameters_that_came_later_get_their_default(tmp_path):
    data = bagwise.load_dataset("digits", n_bags=30)
    model = bagwise.models.MIMLKNN(3, 3).fit(data.bags, data.Y)
    expected = model.decision_function(data.bags)
    del model.device  # as in a file of before
    bagwise.save(model, tmp_path / "old.skops")
    loaded = bagwise.load(tmp_path / "old.skops")
    assert loaded.device == "auto"
    np.testing.assert_array_equal(loaded.decision_function(data.bags), expected)
