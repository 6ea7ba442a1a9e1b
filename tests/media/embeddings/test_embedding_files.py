"""Embeddings in every layout: one truth, many files."""

import sys

import numpy as np
import pytest

from bagwise.errors import DataError, DataWarning, OptionalDependencyError
from bagwise.media import EmbeddingsToBags
from bagwise.media.places import medium_of, slide_places

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 5)).astype(np.float32)
COORDS = np.array([[x, y] for y in (0, 512) for x in (1024, 1536, 2048)])


def bags_of(*sources, **params):
    return EmbeddingsToBags(**params).fit_transform(list(sources))


def check_slide(bags, side, level=0):
    assert np.array_equal(bags.X, X) and bags.X.dtype == np.float32
    assert medium_of(bags.instance_info) == "slide"
    places = slide_places(bags.instance_info)
    assert np.array_equal(np.column_stack([places.x, places.y]), COORDS)
    assert set(places.width) == set(places.height) == {side} and set(places.level) == {level}


@pytest.mark.parametrize("how", [{}, {"chunks": (2, 5), "compression": "gzip"}])
def test_trident(tmp_path, how):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("features", data=X[None], **({} if not how else {"compression": "gzip"}))
        coords = file.create_dataset("coords", data=COORDS, **({**how, "chunks": (2, 2)} if how else {}))
        coords.attrs.update({"patch_size": 256, "patch_size_level0": 512, "overlap": 0, "name": "s"})
        coords.attrs["savetodir"] = "somewhere"
    check_slide(bags_of(tmp_path / "s.h5"), 512)
    assert "savetodir" not in bags_of(tmp_path / "s.h5").instance_info


def test_clam(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"], file["coords"] = X, COORDS.astype(np.int32)
        file["coords"].attrs.update({"patch_size": 256, "patch_level": 1, "downsample": (2.0, 2.0)})
    check_slide(bags_of(tmp_path / "a.h5"), 512, level=1)
    with h5py.File(tmp_path / "b.h5", "w") as file:  # the features' own file says no sizes
        file["features"], file["coords"] = X, COORDS
    with pytest.warns(DataWarning, match="the distance between them, 512 pixels"):
        check_slide(bags_of(tmp_path / "b.h5"), 512)
    check_slide(bags_of(tmp_path / "b.h5", tile_size=256), 256)


def test_groups_offsets_and_tables_of_one_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["p1/s1/features"], file["p1/s2/features"] = X[:2], X[2:]
        file["p1/s1/coords"], file["p1/s2/coords"] = COORDS[:2], COORDS[2:]
        file["p1"].attrs["note"] = "text"
    bags = bags_of(tmp_path / "many.h5", tile_size=1)
    assert [i.rpartition("#")[2] for i in bags.bag_ids] == ["p1/s1", "p1/s2"] and np.array_equal(bags.X, X)
    assert set(bags.instance_info["file"]) == {(tmp_path / "many.h5").as_posix()}
    np.savez(tmp_path / "flat.npz", features=X, offsets=[0, 2, 2, 6])
    bags = bags_of(tmp_path / "flat.npz")
    assert bags.sizes.tolist() == [2, 0, 4] and np.array_equal(bags.X, X)
    np.savez(tmp_path / "named.npz", wren=X[:1], robin=X[1:], note=np.array("text"))
    assert [i.rpartition("#")[2] for i in bags_of(tmp_path / "named.npz").bag_ids] == ["wren", "robin"]
    with pytest.raises(DataError, match="offsets should run from 0 to 6"):
        bags_of({"features": X, "offsets": [0, 5]})
    with pytest.raises(DataError, match="offsets should not decrease"):
        bags_of({"features": X, "offsets": [0, 5, 3, 6]})


@pytest.mark.parametrize("compressed", [False, True])
def test_numpy_files(tmp_path, compressed):
    for k in range(3):
        np.save(tmp_path / f"bag{k}.npy", X[2 * k : 2 * k + 2])
    bags = EmbeddingsToBags().fit_transform(tmp_path)
    assert list(bags.bag_ids) == ["bag0.npy", "bag1.npy", "bag2.npy"] and np.array_equal(bags.X, X)
    assert medium_of(bags.instance_info) is None
    (np.savez_compressed if compressed else np.savez)(tmp_path / "one.npz", features=X, coords=COORDS)
    check_slide(bags_of(tmp_path / "one.npz", tile_size=512), 512)
    np.save(tmp_path / "turned.npy", np.asfortranarray(X))
    assert np.array_equal(bags_of(tmp_path / "turned.npy").X, X)
    np.savez(tmp_path / "turned.npz", features=np.asfortranarray(X))
    assert np.array_equal(bags_of(tmp_path / "turned.npz").X, X)


def test_plain_arrays_are_mapped_not_copied(tmp_path):
    h5py = pytest.importorskip("h5py")
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", features=X)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["features"] = X
    for name in ("a.npy", "b.npz", "c.h5"):
        part = EmbeddingsToBags()._part(str(tmp_path / name))
        base = part.X
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert type(base).__name__ in ("memmap", "mmap"), name


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i1", "u2", "i8"])
def test_kinds_of_numbers(tmp_path, dtype):
    values = np.round(X * 10).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    bags = bags_of(tmp_path / "a.npy")
    assert np.array_equal(bags.X, values.astype(float))
    assert bags.X.dtype == (np.float64 if dtype in ("f8", "i8") else np.float32)


def test_safetensors(tmp_path):
    numpy_form = pytest.importorskip("safetensors.numpy")
    numpy_form.save_file({"features": X, "coords": COORDS}, tmp_path / "a.safetensors")
    check_slide(bags_of(tmp_path / "a.safetensors", tile_size=512), 512)
    facts = {"bag_ids": '["wren", "robin"]'}
    numpy_form.save_file({"features": X, "offsets": np.array([0, 1, 6])}, tmp_path / "b.safetensors", facts)
    assert [i.rpartition("#")[2] for i in bags_of(tmp_path / "b.safetensors").bag_ids] == ["wren", "robin"]
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    half = torch.from_numpy(X).to(torch.bfloat16)
    save_file({"features": half}, tmp_path / "c.safetensors")
    assert np.array_equal(bags_of(tmp_path / "c.safetensors").X, half.float().numpy())


def test_torch(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.from_numpy(X), tmp_path / "clam.pt")
    torch.save(
        {"features": torch.from_numpy(X).half(), "coords": torch.from_numpy(COORDS)}, tmp_path / "d.pt"
    )
    torch.save(torch.from_numpy(X), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(X, tmp_path / "trident.pt")
    assert np.array_equal(bags_of(tmp_path / "clam.pt").X, X)
    assert np.array_equal(bags_of(tmp_path / "old.pt").X, X)
    assert np.array_equal(bags_of(tmp_path / "trident.pt").X, X)
    assert np.array_equal(bags_of(tmp_path / "d.pt", tile_size=1).X, X.astype(np.float16).astype(np.float32))
    torch.save(torch.zeros(1).expand(10**9, 10**3), tmp_path / "wide.pt")
    with pytest.raises(DataError, match="declares 1000000000 x 1000"):
        bags_of(tmp_path / "wide.pt")


class _Evil:
    def __reduce__(self):
        import os

        return (os.system, ("touch was_run",))


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch):
    import pickle

    monkeypatch.chdir(tmp_path)
    objects = np.array([_Evil(), _Evil()], dtype=object)
    np.save("a.npy", objects, allow_pickle=True)
    np.savez("b.npz", features=objects)
    names = ["a.npy", "b.npz"]
    if "torch" in sys.modules or pytest.importorskip("torch"):
        import torch

        torch.save(_Evil(), "c.pt")
        (tmp_path / "d.pt").write_bytes(pickle.dumps(_Evil()))
        names += ["c.pt", "d.pt"]
    for name in names:
        with pytest.raises(DataError):
            bags_of(name)
    assert not (tmp_path / "was_run").exists()


def test_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w")
    group.create_array("features", shape=X.shape, dtype="f4")[...] = X
    group.create_array("coords", shape=COORDS.shape, dtype="i8")[...] = COORDS
    group["coords"].attrs["patch_size_level0"] = 512
    check_slide(EmbeddingsToBags().fit_transform(tmp_path), 512)


def test_tables(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    ids = ["b", "b", "a", "b", "a", "a"]
    rows = pa.table({"slide_id": ids, "embedding": X.tolist(), "x": COORDS[:, 0], "y": COORDS[:, 1]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    bags = bags_of(tmp_path / "rows.parquet", tile_size=512)
    assert [i.rpartition("#")[2] for i in bags.bag_ids] == ["b", "a"]
    np.testing.assert_array_equal(bags.X, X[[0, 1, 3, 2, 4, 5]])
    assert bags.instance_info["x"].tolist() == COORDS[[0, 1, 3, 2, 4, 5], 0].tolist()
    nested = {"bag_id": ["u", "v"], "features": [X[:2].tolist(), X[2:].tolist()]}
    nested["coords"] = [COORDS[:2].tolist(), COORDS[2:].tolist()]
    pq.write_table(pa.table(nested), tmp_path / "bags.parquet")
    check_slide(bags_of(tmp_path / "bags.parquet", tile_size=512), 512)
    lines = [f'{k},{x},"{",".join(str(v) for v in row)}"' for k, x, row in zip(ids, COORDS[:, 0], X)]
    (tmp_path / "c.csv").write_text("file,x,embedding\n" + "\n".join(lines) + "\n")
    np.testing.assert_allclose(bags_of(tmp_path / "c.csv").X, X[[0, 1, 3, 2, 4, 5]], rtol=1e-6)
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column to take for features="):
        bags_of(tmp_path / "d.csv")


def test_empty_slides_and_vectors_of_whole_slides():
    empty = {"features": np.zeros((0, 5), np.float32), "coords": np.zeros((0, 2))}
    full = {"features": X, "coords": COORDS}
    bags = bags_of(empty, full, {"features": np.zeros(0), "coords": np.zeros((0, 2))}, tile_size=512)
    assert bags.sizes.tolist() == [0, 6, 0] and bags.n_features == 5
    assert bags_of(X[0], X[1]).sizes.tolist() == [1, 1]


def test_what_is_wrong_is_said(tmp_path):
    wrong = {
        "coordinates of shape": {"features": X, "coords": COORDS[:3]},
        "not finite": {"features": np.where(X > 1, np.nan, X)},
        "are not finite": {"features": np.where(X > 1, np.inf, X).astype(np.float16)},
        "coordinates that are not finite": {"features": X, "coords": np.full((6, 2), np.inf)},
        "holds no table of features": {"names": np.array(["a"])},
        "should be a table": {"features": X.reshape(2, 3, 5)},
    }
    for reason, source in wrong.items():
        with np.errstate(invalid="ignore"), pytest.raises(DataError, match=reason):
            bags_of(source)
    with pytest.raises(DataError, match="holds no array 'other'"):
        bags_of({"features": X}, features="other")
    (tmp_path / "a.h5").write_bytes(b"no")
    with pytest.raises((DataError, OptionalDependencyError), match=r"cannot be read as HDF5|h5py"):
        bags_of(tmp_path / "a.h5")
    with pytest.raises(DataError, match="no such file"):
        bags_of(tmp_path / "nowhere.npy")
    with pytest.warns(DataWarning, match="coordinates of 3 columns"):
        bags_of({"features": X, "coords": np.zeros((6, 3))})


def test_large_numbers_are_finite():
    assert np.isfinite(bags_of(np.full((3, 4), 3e38, dtype=np.float32)).X).all()
    assert bags_of(np.full((3, 4), 65504, dtype=np.float16)).X.max() == 65504


def test_links_out_of_the_file_are_not_followed(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["features"] = X
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = h5py.ExternalLink("other.h5", "/features")
        file["loop"] = h5py.SoftLink("/")
    with pytest.raises(DataError, match="holds no table"):
        bags_of(tmp_path / "a.h5")
