"""The published CSV sets have the published counts; needs their folder in BAGWISE_DATA."""

import os
import string
from pathlib import Path

import numpy as np
import pytest

from bagwise.io import read

FOLDER = os.environ.get("BAGWISE_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="BAGWISE_DATA names no folder of data sets")


@pytest.mark.parametrize(
    ("file", "n_bags", "n_positive", "n_instances", "sizes", "n_features"),
    [
        ("musk2/musk2.csv.gz", 102, 39, 6598, (1, 1044), 166),
        ("ucsb_breast/ucsb_breast_cancer.csv.gz", 58, 26, 2002, (21, 40), 708),
        ("web_recommendation/web_recommendation_1.csv.gz", 75, 21, 2212, (4, 131), 5863),
        ("protein/protein.csv.gz", 193, 25, 26611, (35, 189), 9),
    ],
)
def test_sets_without_header(file, n_bags, n_positive, n_instances, sizes, n_features):
    data = read(Path(FOLDER) / file)
    assert data.label_names == ("positive",)
    assert (len(data), int(data.Y.sum())) == (n_bags, n_positive)
    assert data.bags.X.shape == (n_instances, n_features)
    assert (data.bags.sizes.min(), data.bags.sizes.max()) == sizes
    assert data.instance_Y is None


@pytest.mark.parametrize(
    ("file", "n_bags", "n_instances", "largest", "cardinality"),
    [
        ("letter_frost/letter_frost_instances.csv", 141, 562, 11, 3.66),
        ("letter_carroll/letter_carroll_rebuilt.csv", 166, 718, 12, 3.94),
    ],
)
def test_letters(file, n_bags, n_instances, largest, cardinality):
    data = read(Path(FOLDER) / file, label_names=string.ascii_uppercase)
    assert len(data) == n_bags
    assert data.bags.X.shape == (n_instances, 16)
    assert (data.bags.sizes.min(), data.bags.sizes.max()) == (1, largest)
    assert len(data.label_names) == 26
    assert int((data.Y.sum(axis=0) > 0).sum()) == 24
    assert round(data.cardinality, 2) == cardinality
    union = np.zeros_like(data.Y)
    union[data.bags.index, data.instance_Y] = 1
    np.testing.assert_array_equal(data.Y, union)
