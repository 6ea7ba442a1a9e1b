"""Files that were damaged or made up: one line, and no memory taken."""

import json
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from spoiled_files import rewritten, without_fingerprint

import bagwise
from bagwise import Bags
from bagwise.checks import sample_bags
from bagwise.errors import DataError
from bagwise.models import (
    MIMLKNN,
)
from bagwise.persistence import model_facts

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
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (35000000,), }"
        header = header.ljust(117) + b"\n"
        parts[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(280_000_000)
        without_fingerprint(parts)

    bomb = rewritten(saved, tmp_path / "bomb.skops", blow_up, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 2_000_000
    command = [sys.executable, "-c", LIMITED, str(bomb)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "would take 0.3 GB of memory" in done.stdout and len(done.stdout.splitlines()) == 1


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
