"""Files and folders under stress: kills, full disks, pipes, spoiled content, little memory."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.errors import DataError, StorageError
from bagwise.io import read, write
from bagwise.utils import files
from bagwise.utils.files import replacing

SPARSE = sparse.csr_array(np.array([[0, 1.5, 0], [2.5, 0, 0], [0, 0, 3.5]]))


def small(kind="dense", n=3):
    X = SPARSE if kind == "sparse" else np.arange(9.0).reshape(3, 3)
    bags = Bags(X, [0, 1, 3], bag_ids=["a", "b"], instance_info={"word": ["x", "y", "z"]})
    return bags if n == 3 else bags[:1]


# ---------------------------------------------------------------------- one file in place of another


def test_links_are_followed_and_permissions_kept(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "set.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write(Dataset(small(), [["x"], []]), link)
    assert link.is_symlink() and "bag_id" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path / "real") == ["set.csv"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name, words in [("pipe.csv", "is a pipe"), ("folder.csv", "is a folder")]:
        with pytest.raises(DataError, match=words):
            write(Dataset(small(), [["x"], []]), tmp_path / name)
    assert (tmp_path / "folder.csv").is_dir()


def test_what_killed_runs_leave_is_swept(tmp_path):
    code = f"""
        import sys, time
        sys.path.insert(0, {str(Path(files.__file__).parents[2])!r})
        from bagwise.utils.files import replacing
        with replacing({str(tmp_path / "set.csv")!r}) as path:
            path.write_text("half"); print("ready", flush=True); time.sleep(60)
    """
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    run.stdout.readline()
    with replacing(tmp_path / "set.csv") as path:
        path.write_text("first")
    assert len(os.listdir(tmp_path)) == 2  # its owner lives
    run.send_signal(signal.SIGKILL)
    run.wait()
    with replacing(tmp_path / "set.csv") as path:
        path.write_text("second")
    assert os.listdir(tmp_path) == ["set.csv"]


def test_only_our_leftovers_are_swept(tmp_path):
    for name in (".set.csv-abcdefgh", ".other.csv-abcdefgh", ".set.csv-short", ".set.csv-abcdefg1"):
        (tmp_path / name).mkdir()
    old = time.time() - 3 * 24 * 3600
    os.utime(tmp_path / ".set.csv-abcdefgh", (old, old))  # of an earlier version: no lock
    with replacing(tmp_path / "set.csv") as path:
        path.write_text("x")
    assert sorted(os.listdir(tmp_path)) == [
        ".other.csv-abcdefgh", ".set.csv-abcdefg1", ".set.csv-short", "set.csv"
    ]  # fmt: skip


FORMATS = [".csv", ".parquet", ".npz", ".arff", ".mat"]


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory):
    """A process that may write no large file, what it said about each format, and the folders it wrote to."""
    paths = [tmp_path_factory.mktemp("full") / f"set{suffix}" for suffix in FORMATS]
    for path in paths:
        path.write_text("older")
    code = f"""
        import resource, signal, sys
        sys.path.insert(0, {str(Path(files.__file__).parents[2])!r})
        import numpy as np
        from bagwise import Bags, Dataset
        from bagwise.io import write
        data = Dataset(Bags(np.random.default_rng(0).random((20000, 4)), [0, 20000]), [["x"]])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        for path in sys.argv[1:]:
            try:
                write(data, path)
            except Exception as error:
                print(type(error).__name__, error)
            print("next")
    """
    # -B: or the limit cuts our compiled modules short as well
    command = [sys.executable, "-B", "-c", textwrap.dedent(code), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(FORMATS, zip(paths, done.stdout.split("next\n"))))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_full_disk_is_one_line(full_disk, suffix):
    path, said = full_disk[suffix]
    assert said.startswith(f"StorageError {path}: cannot be written (File too large)"), said
    assert said.count("\n") == 1
    assert os.listdir(path.parent) == [path.name] and path.read_text() == "older"


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(StorageError, match="No space left on device"), files.disk_full("x"):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(PermissionError), files.disk_full("x"):
        raise PermissionError(errno.EACCES, "no")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    "ids", [[10**18 * 9 + 1, 10**18 * 9 + 2], [0.5, 1.5], [0.0, 1.0], ["a b", "'q\""], [-1, 7]]
)
def test_what_was_written_is_read(tmp_path, suffix, ids):
    data = Dataset(Bags(np.ones((2, 1)), [0, 1, 2], bag_ids=ids), [["", "x"], ["x"]])
    write(data, tmp_path / f"set{suffix}")
    again = read(tmp_path / f"set{suffix}")
    if suffix == ".mat" and isinstance(ids[0], float):
        ids = [str(i) for i in ids]  # kept as text
    assert again.bags.bag_ids.tolist() == ids
    assert again.label_sets == [["", "x"], ["x"]]


# ---------------------------------------------------------------------- a folder of memory maps


class Stop(BaseException):
    """As sudden as a kill, but the test goes on."""


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_save_that_is_stopped_anywhere_loses_nothing(tmp_path, monkeypatch, kind):
    place = tmp_path / "store"
    steps = 0
    while True:
        small(kind).save(place)
        left = steps

        def counted(function):
            def step(*args, **kwargs):
                nonlocal left
                if left == 0:
                    raise Stop
                left -= 1
                return function(*args, **kwargs)

            return step

        with monkeypatch.context() as patched:
            for module, name in [
                (os, "replace"),
                (os, "rename"),
                (os, "unlink"),
                (os, "fsync"),
                (os, "listdir"),  # after a kill nobody tidies up
                (np, "save"),
            ]:
                patched.setattr(module, name, counted(getattr(module, name)))
            try:
                small(kind, n=1).save(place)
                stopped = False
            except Stop:
                stopped = True
        found = Bags.open(place)
        assert found.equals(small(kind)) or found.equals(small(kind, n=1))
        if not stopped:
            break
        steps += 1
    assert steps > 8 and found.equals(small(kind, n=1))
    small(kind).save(place)
    arrays = json.loads((place / "facts.json").read_text())["arrays"]
    assert sorted(os.listdir(place)) == sorted([*arrays.values(), "facts.json"])  # leftovers are swept


def test_files_of_others_are_left_alone(tmp_path):
    place = tmp_path / "store"
    place.mkdir()
    (place / "thesis.txt").write_text("precious")
    with pytest.raises(DataError, match=r"holds other files \(thesis.txt\)"):
        small().save(place)
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="is a file"):
        small().save(tmp_path / "file")
    small().save(tmp_path / "new")
    (tmp_path / "new" / "notes.txt").write_text("precious")
    small(n=1).save(tmp_path / "new")
    assert (tmp_path / "new" / "notes.txt").exists() and len(Bags.open(tmp_path / "new")) == 1
    (tmp_path / "link").symlink_to(tmp_path / "new")
    small().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and len(Bags.open(tmp_path / "new")) == 2


def array_file(place, name):
    return place / json.loads((place / "facts.json").read_text())["arrays"][name]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("indices", lambda a: np.full_like(a, 10**8), "column outside 0..2"),
        ("indices", lambda a: -a - 1, "column outside"),
        ("indices", lambda a: a.astype(float), "must be integers"),
        ("indices", lambda a: a[:1], "do not fit together"),
        ("indptr", lambda a: a[::-1], "do not run from"),
        ("indptr", lambda a: a + 10**6, "do not run from"),
        ("data", lambda a: a * np.nan, "bag 'a', feature 1 is not finite"),
        ("offsets", lambda a: a + 1, "offsets"),
        ("offsets", lambda a: a.astype(float), "offsets"),
        ("bag_ids", lambda a: a[:1], "bag_ids must have 2 entries"),
        ("info.word", lambda a: a[:1], "instance_info 'word'"),
    ],
)
def test_a_spoiled_array_is_named(tmp_path, name, change, words):
    small("sparse").save(tmp_path / "s")
    file = array_file(tmp_path / "s", name)
    np.save(file, change(np.load(file)))
    with pytest.raises(DataError, match=words) as caught:
        Bags.open(tmp_path / "s")
    assert str(tmp_path / "s") in str(caught.value)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_every_missing_or_odd_part_is_one_error(tmp_path, kind):
    small(kind).save(tmp_path / "s")
    facts_file = tmp_path / "s" / "facts.json"
    text = facts_file.read_text()
    facts = json.loads(text)
    spoiled = [
        {**facts, "arrays": {k: v for k, v in facts["arrays"].items() if k != name}}
        for name in facts["arrays"]
    ]
    spoiled = [s for s, name in zip(spoiled, facts["arrays"]) if name not in ("bag_ids", "info.word")]
    for value in (None, [], "x", 7, {"a": 1}):
        spoiled += [{**facts, "facts": value}, {**facts, "arrays": value}, value]
        spoiled += [{**facts, "arrays": {**facts["arrays"], "offsets": value}}]
        if value not in (None, []) and not (value == 7 and kind == "sparse"):  # such a matrix may be wider
            spoiled.append({**facts, "facts": {**facts["facts"], "n_features": value}})
    spoiled += [{**facts, "facts": {}}, {**facts, "facts": {**facts["facts"], "n_features": -1}}]
    for content in spoiled:
        facts_file.write_text(json.dumps(content))
        with pytest.raises(DataError) as caught:
            Bags.open(tmp_path / "s")
        assert "\n" not in str(caught.value)
    facts_file.write_text("[" * 100_000)
    with pytest.raises(DataError):
        Bags.open(tmp_path / "s")
    facts_file.write_text(text)
    assert Bags.open(tmp_path / "s").equals(small(kind))
    assert Bags.open(tmp_path / "s", check=False).equals(small(kind))


def test_arrays_cut_or_too_large(tmp_path):
    small().save(tmp_path / "s")
    file = array_file(tmp_path / "s", "X")
    content = file.read_bytes()
    for spoiled in (
        content[:-1],
        content[:20],
        b"",
        content.replace(b"(3, 3)", b"(9, 9)"),
        b"\x80\x04pickle",
    ):
        file.write_bytes(spoiled)
        with pytest.raises(DataError):
            Bags.open(tmp_path / "s")
    np.save(file, np.array([object()]), allow_pickle=True)
    with pytest.raises(DataError):
        Bags.open(tmp_path / "s")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_damaged_bytes_give_one_line_or_sound_bags(tmp_path, kind):
    rng = np.random.default_rng(7)
    small(kind).save(tmp_path / "s")
    content = {file: file.read_bytes() for file in sorted((tmp_path / "s").iterdir())}
    refused = 0
    for k in range(200):
        file = list(content)[k % len(content)]
        spoiled = bytearray(content[file])
        place, span = rng.integers(len(spoiled)), rng.integers(1, 9)
        spoiled[place : place + span * (k % 3)] = bytes(rng.integers(0, 256, span * (k % 2), dtype=np.uint8))
        file.write_bytes(bytes(spoiled))
        try:
            found = Bags.open(tmp_path / "s")
            assert np.isfinite(found.X.sum()) and found._repr_html_() and repr(found.bag_ids)
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
        file.write_bytes(content[file])
    assert refused > 80


# ---------------------------------------------------------------------- what is no file


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    for name in ("set.csv", "set.npz", "set.parquet", "set.arff", "set.mat", "set.data", "set"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match="is a pipe"):
            read(tmp_path / name)
        if name != "set":
            with pytest.raises(DataError, match="is a pipe"):
                read(tmp_path / name, format={"set.mat": "matlab", "set.data": "c45"}.get(name, name[4:]))
    with pytest.raises(DataError, match="is a device"):
        read("/dev/zero")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "train-data.dat").write_text("<1> <1> 0\n")
    os.mkfifo(documents / "vocabs.txt")
    with pytest.raises(DataError, match=r"vocabs\.txt: is a pipe"):
        read(documents)
    (documents / "vocabs.txt").unlink()
    (documents / "vocabs.txt").mkdir()
    with pytest.raises(DataError, match=r"vocabs\.txt: is a folder"):
        read(documents)
    small().save(tmp_path / "store")
    (tmp_path / "store" / "facts.json").unlink()
    os.mkfifo(tmp_path / "store" / "facts.json")
    with pytest.raises(DataError, match="is a pipe"):
        Bags.open(tmp_path / "store")


def test_labels_beside_arff_may_not_be_a_pipe(tmp_path):
    write(Dataset(small(), [["x"], []]), tmp_path / "set.npz")
    with pytest.warns(UserWarning, match="facts about instances"):
        write(Dataset(small(), [["x"], []]), tmp_path / "set.arff")
    os.mkfifo(tmp_path / "set.xml")
    with pytest.raises(DataError, match=r"set\.xml: is a pipe"):
        read(tmp_path / "set.arff")


# ---------------------------------------------------------------------- little memory


def test_small_files_are_read_with_little_address_space(tmp_path):
    data = Dataset(Bags(np.ones((3, 2)), [0, 1, 3]), [["x"], []])
    names = []
    for suffix in (".csv", ".arff", ".npz", ".parquet", ".mat"):
        names.append(str(tmp_path / f"set{suffix}"))
        write(data, names[-1])
    code = f"""
        import resource, sys
        sys.path.insert(0, {str(Path(files.__file__).parents[2])!r})
        resource.setrlimit(resource.RLIMIT_AS, (2_000_000 * 1024, 2_000_000 * 1024))
        from bagwise.io import read
        for name in {names}:
            assert len(read(name)) == 2
        print("read")
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "read\n", done.stderr[-2000:]
