import hashlib
import os
import re
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bagwise.datasets import loaders, registry
from bagwise.datasets.registry import GENERATORS, Entry, PublicFile, entries, list_datasets, load_dataset
from bagwise.errors import DataError, DownloadError

needs_data = pytest.mark.skipif(not os.environ.get("BAGWISE_DATA"), reason="BAGWISE_DATA is not set")

# Fewest and most instances per bag, and positive bags or splits, as written in the notes on the sets.
SIZES = {
    "letter_recognition": (1, 1),
    "letter_frost": (1, 11),
    "letter_carroll": (1, 12),
    "msrcv2": (1, 17),
    "miml_scene": (9, 9),
    "miml_reuters": (2, 26),
    "miml_birds": (2, 36),
    "mltm_dbpedia": (4, 32),
    "mltm_reuters": (3, 55),
    "musk1": (2, 40),
    "musk2": (1, 1044),
    "elephant": (2, 13),
    "fox": (2, 13),
    "corel2000": (2, 13),
    "sival": (4, 64),
    "ucsb_breast": (21, 40),
    "web_recommendation": (4, 131),
    "protein": (35, 189),
}
SPLITS = {
    "letter_recognition": {"train": 16000, "test": 4000},
    "miml_birds": {"train": 205, "test": 52},
    "mltm_dbpedia": {"train": 4500, "valid": 3000, "test": 500},
    "mltm_reuters": {"train": 6455, "valid": 341, "test": 3147},
}


@pytest.mark.parametrize("name", entries())
def test_every_entry_is_complete(name):
    entry = entries()[name]
    for field in ("title", "origin", "licence", "citation"):
        assert len(getattr(entry, field)) > 2, field
    assert entry.kind in ("MIML", "MIL", "single instance")
    assert min(entry.bags, entry.instances, entry.features, entry.labels, entry.cardinality) > 0
    assert callable(entry.loader) and entry.files
    for file in entry.files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0
        assert "/" not in file.name and not file.name.endswith(".gz")
        assert (file.url.startswith("https://") and file.url.endswith(file.name)) or file.by_hand


def test_all_sets_are_listed():
    names = [row["name"] for row in list_datasets()]
    assert len(names) == len(set(names)) == 18 + 20 + len(GENERATORS)
    assert sum(name.startswith("newsgroups/") for name in names) == 20
    assert set(SIZES) < set(names)


@needs_data
@pytest.mark.parametrize("name", entries())
def test_counts_agree(name):
    entry = entries()[name]
    data = load_dataset(name, download=False)
    assert (len(data), data.bags.n_instances, data.bags.n_features) == (
        entry.bags,
        entry.instances,
        entry.features,
    )
    assert len(data.label_names) == entry.labels
    assert data.cardinality == pytest.approx(entry.cardinality, abs=6e-4)
    assert (data.instance_Y is not None) == entry.instance_labels
    low, high = SIZES.get(name, (8, 84))
    assert low <= data.bags.sizes.min() and data.bags.sizes.max() <= high
    if name in SIZES:
        assert (data.bags.sizes.min(), data.bags.sizes.max()) == (low, high)
    assert {part: len(rows) for part, rows in data.splits.items()} == SPLITS.get(name, {})
    if entry.labels == 1:
        assert data.label_names == ("positive",)
    assert data.name == name and data.licence == entry.licence and data.citation == entry.citation
    assert len(set(data.bags.bag_ids.tolist())) == len(data)


@needs_data
def test_files_at_hand_have_their_checksums():
    for entry in entries().values():
        entry.obtain(None, download=False, verify=True)


@needs_data
def test_all_newsgroups_together():
    topics = [entry for name, entry in entries().items() if name.startswith("newsgroups/")]
    assert sum(entry.instances for entry in topics) == 80137
    assert Counter(round(100 * entry.cardinality) for entry in topics) == {50: 15, 49: 4, 47: 1}


@needs_data
@pytest.mark.parametrize(
    ("name", "file"),
    [("letter_frost", "letter_frost_instances.csv"), ("letter_carroll", "letter_carroll_rebuilt.csv")],
)
def test_letter_sets_equal_the_derived_tables(name, file):
    table = np.genfromtxt(
        os.path.join(os.environ["BAGWISE_DATA"], name, file),
        delimiter=",",
        names=True,
        dtype=None,
        encoding="utf-8",
    )
    data = load_dataset(name, download=False)
    assert np.array_equal(np.array(data.label_names)[data.instance_Y], table["letter"])
    assert np.array_equal(data.bags.index + 1, table["bag"])
    assert np.array_equal(data.bags.X, np.column_stack([table[f"f{k}"] for k in range(1, 17)]))
    if name == "letter_carroll":
        assert np.array_equal(data.bags.instance_info["row"], table["row"])


@needs_data
@pytest.mark.parametrize("name", ["letter_frost", "letter_carroll"])
def test_letters_can_be_drawn_anew(name):
    published = load_dataset(name, download=False)
    first, again, other = (load_dataset(name, download=False, random_state=s) for s in (3, 3, 4))
    assert first.bags.equals(again.bags) and not first.bags.equals(other.bags)
    for fresh in (first, other):
        assert np.array_equal(fresh.Y, published.Y)
        assert np.array_equal(fresh.instance_Y, published.instance_Y)
        assert np.array_equal(fresh.bags.bag_ids, published.bags.bag_ids)
        rows = fresh.bags.instance_info["row"]
        assert len(np.unique(rows)) == len(rows)


@needs_data
def test_msrcv2_as_images_and_as_runs(tmp_path):
    images = load_dataset("msrcv2", download=False)
    runs = load_dataset("msrcv2", download=False, bags="runs")
    assert (len(images), len(runs)) == (591, 358)
    assert images.label_names[:3] == ("building", "grass", "tree")
    assert np.array_equal(images.bags.X, runs.bags.X)
    for data in (images, runs):
        union = np.zeros_like(data.Y)
        union[data.bags.index, data.instance_Y] = 1
        assert np.array_equal(union, data.Y)
    folder = tmp_path / "msrcv2"
    folder.mkdir()
    (folder / "MSRCv2.mat").symlink_to(os.path.join(os.environ["BAGWISE_DATA"], "msrcv2", "MSRCv2.mat"))
    assert len(load_dataset("msrcv2", data_home=tmp_path, download=False, bags="runs")) == 358
    with pytest.raises(DownloadError, match=r'bag_index_reconstructed\.csv.*BAGWISE_DATA.*bags="runs"'):
        load_dataset("msrcv2", data_home=tmp_path, download=False)


@needs_data
def test_one_part_of_a_text_set():
    data = load_dataset("mltm_dbpedia", download=False, part="test")
    assert len(data) == 500 and data.label_names[0] == "Company" and data.bags.is_sparse


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_sets_by_name(name):
    data = load_dataset(name, n_bags=24, random_state=1)
    assert data.name == name and len(data) == 24


def test_names_and_options_that_do_not_exist():
    with pytest.raises(DataError, match="did you mean 'elephant'"):
        load_dataset("elefant")
    with pytest.raises(DataError, match="20 of them: 'newsgroups/alt_atheism'"):
        load_dataset("newsgroups")
    with pytest.raises(TypeError, match="'digits' has no option 'bags'; its options are n_bags"):
        load_dataset("digits", bags=3)
    with pytest.raises(TypeError, match="'musk1' has no option 'random_state'; it has none"):
        load_dataset("musk1", random_state=3)


# ---------------------------------------------------------------------- nothing at hand


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    monkeypatch.setenv("BAGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_status_without_files(nothing, tmp_path):
    status = {row["name"]: row["status"] for row in list_datasets()}
    assert status["musk1"] == status["letter_frost"] == status["msrcv2"] == "download"
    assert status["corel2000"] == status["newsgroups/sci_med"] == "by hand"
    assert status["digits"] == "generated"
    (tmp_path / "letter_frost").mkdir()
    (tmp_path / "letter_frost" / "newlabels.mat").touch()
    assert entries()["letter_frost"].status(tmp_path) == "download"  # the letters are still missing
    (tmp_path / "letter_recognition").mkdir()
    (tmp_path / "letter_recognition" / "letter-recognition.data.gz").touch()
    assert entries()["letter_frost"].status(tmp_path) == "at hand"


def test_sets_in_archives_come_with_instructions(nothing):
    with pytest.raises(DownloadError, match=r"Unpack https://.*rar.*newsgroups.*BAGWISE_DATA"):
        load_dataset("newsgroups/sci_med")


def test_a_set_is_downloaded_read_and_kept(nothing, monkeypatch, tmp_path):
    published = tmp_path / "published"
    published.mkdir()
    content = b"a,a_1,0.5,7,1.\nb,b_1,0,1,0.\na,a_2,2,3,1.\n"
    (published / "toy.data").write_bytes(content)
    requests = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=published))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/toy.data"
    file = PublicFile("toy", "toy.data", hashlib.sha256(content).hexdigest(), len(content), url)
    toy = Entry("toy", "Toy.", "MIL", "here", "none", "nobody", 2, 3, 2, 1, 0.5, False, "c45", (file,))
    monkeypatch.setattr(registry, "entries", lambda: {"toy": toy})
    try:
        with pytest.raises(DownloadError, match="not at hand"):
            load_dataset("toy", download=False)
        assert next(row["status"] for row in list_datasets()) == "download"
        data = load_dataset("toy")
        assert data.label_sets == [["positive"], []] and data.description == "Toy. From here."
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert load_dataset("toy", download=False).bags.equals(data.bags)
    assert len(requests) == 1 and list_datasets()[0]["status"] == "at hand"


def test_files_of_one_set_in_two_folders_are_refused(tmp_path):
    files = {"a_1.arff": tmp_path / "x" / "a_1.arff", "a_2.arff": tmp_path / "y" / "a_2.arff"}
    with pytest.raises(DataError, match="spread over"):
        loaders.load_pair(files)
