"""Whatever is in a file of embeddings, the reader gives bags or one line, within its memory."""

import io
import json
import os
import resource
import struct
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bagwise.errors import DataError
from bagwise.media import EmbeddingsToBags

COUNT = int(os.environ.get("BAGWISE_FUZZ", "300"))
NEEDS = dict.fromkeys(("npy", "npz", "csv"), "numpy") | {"parquet": "pyarrow", "h5": "h5py"}
NEEDS |= {"safetensors": "safetensors", "pt": "torch"}


def test_mutated_files(tmp_path):
    kinds = [kind for kind, package in NEEDS.items() if find_spec(package)]
    worker = Path(__file__).with_name("embeddings_fuzz_worker.py")
    done = subprocess.run(
        [sys.executable, worker, ",".join(kinds), str(COUNT), tmp_path],
        capture_output=True,
        text=True,
        timeout=60 + COUNT,
    )
    assert done.returncode == 0, f"the reader took the process down: {done.stderr[-2000:]}"
    for report in json.loads(done.stdout):
        assert not report["wrong"], "\n".join(report["wrong"][:5])
        assert report["read"] + report["refused"] == COUNT and report["refused"] > COUNT // 10
        assert report["growth_mib"] < 400


def growth(function):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    function()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def refused(path, match="declares|truncated|cannot be read|outside of the file"):
    with pytest.raises(DataError, match=match) as caught:
        EmbeddingsToBags()._parts(str(path))
    assert "\n" not in str(caught.value)


def npy_header(shape, dtype="<f4"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


def test_huge_shapes_are_refused_unread(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("features", shape=(10**9, 1024), dtype="f4", chunks=(1024, 1024))
    (tmp_path / "b.npy").write_bytes(npy_header((10**9, 1024)))
    (tmp_path / "c.npy").write_bytes(npy_header((10**5, 10)))
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", npy_header((400_000, 1000)) + b"\0" * (64 << 20))
    header = json.dumps({"features": {"dtype": "F32", "shape": [10**9, 9], "data_offsets": [0, 36 * 10**9]}})
    (tmp_path / "e.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    (tmp_path / "f.safetensors").write_bytes(struct.pack("<Q", 2**63))

    def all_of_them():
        for path in sorted(tmp_path.iterdir()):
            refused(path)

    assert growth(all_of_them) < 200


def test_a_zip_bomb_is_refused(tmp_path):
    body = np.zeros(64 << 20, dtype=np.uint8).tobytes()
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("features.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy_header((6 * 64 << 20, 1), "|u1"))
        for _ in range(6):
            member.write(body)
    assert growth(lambda: refused(tmp_path / "a.npz", "declares")) < 200


def test_deep_json_is_refused(tmp_path):
    header = b"[" * 200_000
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    refused(tmp_path / "a.safetensors")


def test_zarr_that_claims_too_much(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.open_group(str(tmp_path / "a.zarr"), mode="w").create_array(
        "features", shape=(10**9, 1024), chunks=(1024, 1024), dtype="f4"
    )
    refused(tmp_path / "a.zarr", "declares")
    for file in (tmp_path / "a.zarr").rglob("zarr.json"):
        file.write_text("{" * 5000)
    refused(tmp_path / "a.zarr", "cannot be read as zarr")
    (tmp_path / "b.zarr").mkdir()
    refused(tmp_path / "b.zarr", "cannot be read as zarr|holds no")
