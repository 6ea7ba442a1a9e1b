"""NumPy archives: nothing is lost, nothing is unpickled, claims are checked before memory is asked for."""

import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_sets import assert_same, data_sets, small_set
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.errors import DataError
from bagwise.io import read, write


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=data_sets())
def test_round_trip(tmp_path, data):
    write(data, tmp_path / "set.npz")
    assert_same(data, read(tmp_path / "set.npz"))


def change(path, **changes):
    """Write the same archive with other arrays; None leaves one out."""
    arrays = dict(np.load(path)) | changes
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})


def test_arrays_have_the_documented_names(tmp_path):
    write(small_set(), tmp_path / "set.npz")
    with np.load(tmp_path / "set.npz", allow_pickle=False) as arrays:
        expected = "facts Y X offsets bag_ids groups instance_Y info0 info1 split0 split1"
        assert set(arrays) == set(expected.split())
        assert json.loads(str(arrays["facts"]))["label_names"] == ["robin", "wren"]


@pytest.mark.parametrize(
    "changes",
    [
        {"X": None},
        {"Y": None},
        {"facts": None},
        {"facts": np.array("{")},
        {"facts": np.array("[]")},
        {"offsets": np.array([0, 5, 3, 3])},
        {"offsets": np.array([0.0, 2, 2, 3])},
        {"X": np.ones((3, 5))},
        {"X": np.ones(6)},
        {"X": np.full((3, 2), np.nan)},
        {"Y": np.full((3, 2), 2)},
        {"Y": np.ones((3, 5), dtype=int)},
        {"bag_ids": np.array(["a", "a", "b"])},
        {"bag_ids": np.array(["a", "b"])},
        {"instance_Y": np.array([0, 1, 7])},
        {"split0": np.array([9])},
        {"split0": np.array([0.5])},
        {"groups": np.array([1])},
        {"info0": np.ones((3, 9))},
        {"info0": np.ones((2, 4))},
    ],
)
def test_wrong_arrays(tmp_path, changes):
    path = tmp_path / "wrong.npz"
    write(small_set(), path)
    change(path, **changes)
    with pytest.raises(DataError, match=r"wrong\.npz"):
        read(path)


def test_error_names_bag_and_feature(tmp_path):
    path = tmp_path / "wrong.npz"
    write(small_set(), path)
    change(path, X=np.array([[1, 2], [3, 4], [5, np.inf]], dtype=np.float32))
    with pytest.raises(DataError, match=r"wrong\.npz: bag 'c', feature 'height' is inf"):
        read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([0, 9])},
        {"indices": np.array([0, -1])},
        {"indices": np.array([0.0, 1.0])},
        {"indices": np.array([0])},
        {"indptr": np.array([0, 5, 2])},
        {"indptr": np.array([0, -1, 2])},
        {"indptr": np.array([0, 1, 9])},
        {"indptr": np.array([0, 2])},
        {"indptr": np.empty(0, dtype=int)},
    ],
)
def test_wrong_sparse_arrays(tmp_path, changes):
    path = tmp_path / "wrong.npz"
    write(Dataset(Bags(sparse.csr_array([[1.0, 0], [0, 2.0]]), [0, 1, 2]), [["x"], []]), path)
    change(path, **changes)
    with pytest.raises(DataError, match=r"wrong\.npz"):
        read(path)


def test_pickles_stay_unread(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was brought to life",))

    path = tmp_path / "trap.npz"
    write(small_set(), path)
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"info1": np.array([Trap()] * 3, dtype=object)})
    with pytest.raises(DataError, match=r"trap\.npz: array 'info1.npy' holds object"):
        read(path)


def rewritten(path, name, content):
    """The archive with other bytes for one member."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, old in (members | {name: content}).items():
            archive.writestr(other, old)


@pytest.mark.parametrize("shape", [(10**12, 2), (2**62, 2**62), (-1, 2), (3, 10**9)])
def test_header_that_claims_too_much(tmp_path, shape):
    path = tmp_path / "claim.npz"
    write(small_set(), path)
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
    rewritten(path, "X.npy", member.getvalue() + b"\0" * 24)
    with pytest.raises(DataError, match=r"claim\.npz: array 'X.npy'"):
        read(path)


def test_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    write(small_set(), path)
    rewritten(path, "extra.npy", b"\0" * 20_000_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match=r"bomb\.npz: holds .* bytes when unpacked"):
        read(path, max_bytes=10_000_000)


@pytest.mark.parametrize("cut", [0.05, 0.5, 0.95])
def test_truncated_archive(tmp_path, cut):
    path = tmp_path / "cut.npz"
    write(small_set(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(DataError, match=r"cut\.npz: not an npz archive"):
        read(path)


def test_damaged_content_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "flip.npz"
    write(small_set(), path)
    content = bytearray(path.read_bytes())
    place = content.find(np.float32(0.25).tobytes())
    content[place + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"flip\.npz: .*CRC"):
        read(path)
