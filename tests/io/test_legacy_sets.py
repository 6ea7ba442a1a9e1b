"""The public sets in their published files, against counts taken from those files by other means.

Needs the folder of sets: ``BAGWISE_DATA=<folder> pytest tests/io/test_legacy_sets.py``.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from bagwise.io import arff, arff_pair, c45, matlab, read, sentences

DATA = Path(os.environ.get("BAGWISE_DATA", ""))
pytestmark = pytest.mark.skipif(not os.environ.get("BAGWISE_DATA"), reason="BAGWISE_DATA is not set")

BIRDS = "BRCR PAWR PSFL RBNU DEJU OSFL HETH CBCH VATH HEWA SWTH HAFL WETA BHGB GCKI WAVI MGWA STJA CONI"
TOPICS = (
    "gnp money-fx dlr acq grain earn corn interest trade crude ship sugar veg-oil gold oilseed nat-gas wheat"
)
FEWER_POSITIVES = {
    "comp_graphics": 49,
    "comp_sys_ibm_pc_hardware": 49,
    "comp_windows_x": 49,
    "talk_religion_misc": 49,
    "sci_electronics": 47,
}


def check(data, bags, instances, smallest, largest, dims, labels, cardinality=None, known=False):
    assert len(data) == bags
    assert data.bags.n_instances == instances
    assert (data.bags.sizes.min(), data.bags.sizes.max()) == (smallest, largest)
    assert data.bags.n_features == dims
    assert len(data.label_names) == labels
    assert (data.instance_Y is not None) == known
    values = data.bags.X.data if data.bags.is_sparse else data.bags.X
    assert np.isfinite(values).all()
    if cardinality is not None:
        assert data.cardinality == pytest.approx(
            cardinality, abs=0.5 * 10 ** -len(str(cardinality).split(".")[1])
        )


def test_scene():
    data = arff.read(DATA / "miml_scene/miml_03_data.arff.gz")
    check(data, 2000, 18000, 9, 9, 15, 5, 1.236)
    assert data.label_names == ("desert", "mountains", "sea", "sunset", "trees")
    assert data.bags[0][0, :5].tolist() == [179.5, 181, 190.5, -5.25, -35.75]


def test_reuters():
    data = arff.read(DATA / "miml_reuters/miml_text_data.arff.gz")
    check(data, 2000, 7119, 2, 26, 243, 7, 1.154)
    assert data.bags[1][0, :2].tolist() == [1, 0]


def test_birds():
    data = arff.read(DATA / "miml_birds/miml_birds.arff.gz")
    check(data, 257, 2062, 2, 36, 38, 19, 2.066)
    assert data.label_names == tuple(BIRDS.split())
    parts = [arff.read(DATA / f"miml_birds/miml_birds_random_{p}.arff.gz") for p in ("80train", "20test")]
    assert [len(part) for part in parts] == [205, 52]
    assert all(part.label_names == data.label_names for part in parts)
    row_of = {bag: k for k, bag in enumerate(data.bags.bag_ids.tolist())}
    together = [(bag, y) for part in parts for bag, y in zip(part.bags.bag_ids.tolist(), part.Y.tolist())]
    assert sorted(bag for bag, _ in together) == sorted(row_of)
    assert all(data.Y[row_of[bag]].tolist() == y for bag, y in together)


def test_newsgroups():
    stems = sorted(path.name[: -len("_1.arff.gz")] for path in (DATA / "newsgroups").glob("*_1.arff.gz"))
    assert len(stems) == 20
    total = []
    for stem in stems:
        data = arff_pair.read(DATA / "newsgroups" / stem)
        assert (len(data), data.bags.n_features, data.label_names) == (100, 200, ("positive",))
        assert data.Y.sum() == FEWER_POSITIVES.get(stem, 50)
        truth = data.instance_Y == 0
        assert 0.012 <= round(truth.mean(), 3) <= 0.034
        has_one = np.bincount(data.bags.index, weights=truth, minlength=100) > 0
        assert has_one.tolist() == data.Y.ravel().astype(bool).tolist()
        total.append((data.bags.n_instances, data.bags.sizes.min(), data.bags.sizes.max()))
    instances, smallest, largest = zip(*total)
    assert (min(instances), max(instances), sum(instances)) == (1982, 5443, 80137)
    assert (min(smallest), max(largest)) == (8, 84)


def test_corel():
    data = arff_pair.read(DATA / "corel2000/2000image_2.arff.gz")
    check(data, 2000, 7947, 2, 13, 9, 20, 1.0)
    assert data.label_names == tuple(map(str, range(20)))
    assert data.Y.sum(axis=0).tolist() == [100] * 20


def test_letter_frost():
    path = DATA / "letter_frost/newlabels.mat"
    data = matlab.read(path)
    check(data, 141, 562, 1, 11, 16, 21, known=True)
    check(matlab.read(path, labels="Y"), 141, 562, 1, 11, 16, 20, known=True)
    union = np.zeros_like(data.Y)
    union[data.bags.index, data.instance_Y] = 1
    assert (union == data.Y).all()
    # the same instances, found independently, with their letters
    rows = (DATA / "letter_frost/letter_frost_instances.csv").read_text().split("\n")[1:563]
    cells = [row.split(",") for row in rows]
    assert (np.array([cell[3:] for cell in cells], dtype=float) == data.bags.X).all()
    known = list("ILOSDVPCUGQBRWEHYJMK")
    letters = [known.index(cell[2]) if cell[2] in known else 20 for cell in cells]
    assert data.instance_Y.tolist() == letters


def test_msrc():
    path, index = DATA / "msrcv2/MSRCv2.mat", DATA / "msrcv2/bag_index_reconstructed.csv"
    data = matlab.read(path, bag_index=index)
    check(data, 591, 1758, 1, 17, 48, 23, 2.51, known=True)
    union = np.zeros_like(data.Y)
    union[data.bags.index, data.instance_Y] = 1
    assert (union == data.Y).all()
    runs = matlab.read(path)
    check(runs, 358, 1758, 1, 42, 48, 23, known=True)
    listed = [int(row.split(",")[1]) for row in index.read_text().split()[1:]]
    assert runs.bags.sizes.tolist() == np.bincount(listed)[1:].tolist()


def test_sival():
    paths = sorted((DATA / "sival").glob("SIVAL*.mat"))
    data = matlab.read_many(paths)
    check(data, 1500, 47355, 4, 64, 30, 25, 1.0)
    assert data.bags.sizes.mean() == pytest.approx(31.57, abs=0.005)
    per_class = dict(zip(data.label_names, data.Y.sum(axis=0).tolist()))
    odd = {"6": 61, "8": 61, "16": 59, "22": 59}
    assert per_class == {str(k): odd.get(str(k), 60) for k in range(1, 26)}
    assert {len(matlab.read(path).label_names) for path in paths} == {3, 4}


@pytest.mark.parametrize(
    ("path", "bags", "positive", "instances", "smallest", "largest", "dims"),
    [
        ("musk1/clean1.data.gz", 92, 47, 476, 2, 40, 166),
        ("elephant/elephant.data.gz", 200, 100, 1391, 2, 13, 230),
        ("fox/fox.data.gz", 200, 100, 1320, 2, 13, 230),
    ],
)
def test_c45(path, bags, positive, instances, smallest, largest, dims):
    data = c45.read(DATA / path)
    check(data, bags, instances, smallest, largest, dims, 1)
    assert data.Y.sum() == positive
    if "musk" in path:
        assert data.bags.bag_ids[0] == "MUSK-188"
        assert data.bags.instance_info["instance"][0] == "188_1+1"
    else:
        assert data.bags.feature_names[:4] == ("1", "10", "100", "101")


def test_dbpedia():
    data = sentences.read(DATA / "mltm_dbpedia")
    check(data, 8000, 122296, 4, 32, 17953, 10, known=True)
    sizes = {"train": (4500, 68715, 5.79), "valid": (3000, 45791, 5.75), "test": (500, 7790, 5.68)}
    extra = []
    for part, (bags, instances, cardinality) in sizes.items():
        cut = data[part]
        assert (len(cut), cut.bags.n_instances) == (bags, instances)
        assert cut.cardinality == pytest.approx(cardinality, abs=0.005)
        union = np.zeros_like(cut.Y)
        union[cut.bags.index, cut.instance_Y] = 1
        extra.append(int((union != cut.Y).any(axis=1).sum()))
    assert extra == [438, 343, 35]
    assert (data.instance_Y >= 0).all()


def test_mltm_reuters():
    data = sentences.read(DATA / "mltm_reuters")
    check(data, 9943, 75591, 3, 55, 8212, 20)
    sizes = {"train": (6455, 48996, 0.83), "valid": (341, 2717, 0.93), "test": (3147, 23878, 0.83)}
    for part, (bags, instances, cardinality) in sizes.items():
        cut = sentences.read(DATA / "mltm_reuters", part=part)
        assert (len(cut), cut.bags.n_instances) == (bags, instances)
        assert cut.cardinality == pytest.approx(cardinality, abs=0.005)
        assert cut.bags.equals(data[part].bags)
    assert data.label_names[:17] == tuple(TOPICS.split())
    assert (data.Y.sum(axis=1) == 0).mean() == pytest.approx(0.31, abs=0.005)


@pytest.mark.parametrize(
    ("path", "bags"),
    [
        ("miml_birds/miml_birds.arff.gz", 257),
        ("newsgroups/sci_med_1.arff.gz", 100),
        ("newsgroups/sci_med_2.arff.gz", 100),
        ("corel2000/2000image_1.arff.gz", 2000),
        ("letter_frost/newlabels.mat", 141),
        ("sival/SIVAL6.mat", 180),
        ("musk1/clean1.data.gz", 92),
        ("fox/fox.data.gz", 200),
        ("mltm_reuters", 9943),
        ("mltm_reuters/valid-data.dat.gz", 341),
    ],
)
def test_recognised_by_content(path, bags):
    assert len(read(DATA / path)) == bags
