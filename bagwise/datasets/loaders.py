"""From the files of a public set to a `Dataset`: one small function per kind of set.

``load_<reader>`` gets the files by name and the options of `bagwise.datasets.load_dataset` that are its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.letters import find_letters, make_letter_words, read_letters, words_of
from bagwise.errors import DataError, DownloadError
from bagwise.io import arff, arff_pair, c45, csv, matlab, sentences
from bagwise.io._source import read_text

Files = dict[str, Path]

_MSRC_CLASSES = (
    *("building", "grass", "tree", "cow", "horse", "sheep", "sky", "mountain", "aeroplane", "water", "face"),
    *("car", "bicycle", "flower", "sign", "bird", "book", "chair", "road", "cat", "dog", "body", "boat"),
)
_DBPEDIA_CLASSES = (
    *("Company", "EducationalInstitution", "Artist", "Athlete", "MeanOfTransportation"),
    *("Building", "NaturalPlace", "Village", "Animal", "Film"),
)


def load_letters(files: Files) -> Dataset:
    """The UCI letters, each a bag of its own."""
    return read_letters(files["letter-recognition.data"])


def load_letter_frost(files: Files, random_state: Any = None) -> Dataset:
    """The published bags with all 26 letters, or the same words with letters drawn anew."""
    letters = load_letters(files)
    bags = matlab.read(files["newlabels.mat"]).bags
    assert isinstance(bags, Bags)
    data = find_letters(bags, letters)
    return data if random_state is None else make_letter_words(words_of(data), letters, random_state)


def load_letter_carroll(files: Files, random_state: Any = None) -> Dataset:
    """The words of the poem with the first rows of each letter, or with letters drawn anew."""
    return make_letter_words(read_text(files["jabberwocky.txt"]), load_letters(files), random_state)


def load_msrcv2(files: Files, bags: str = "images") -> Dataset:
    """Bags are images (borders reconstructed) or runs of neighbours with equal label sets (exact)."""
    if bags not in ("images", "runs"):
        raise ValueError(f'bags must be "images" or "runs", got {bags!r}')
    index = files.get("bag_index_reconstructed.csv")
    if bags == "images" and index is None:
        raise DownloadError(
            "the borders between the images of msrcv2 are not published with the features: put "
            "bag_index_reconstructed.csv in the folder msrcv2 of the folder named in the environment "
            'variable BAGWISE_DATA, or load the exact runs of equal label sets with bags="runs"'
        )
    return matlab.read(
        files["MSRCv2.mat"], label_names=_MSRC_CLASSES, bag_index=index if bags == "images" else None
    )


def load_arff(files: Files) -> Dataset:
    """One ARFF file with its list of labels."""
    return arff.read(_only(files, ".arff"), xml=_only(files, ".xml"))


def load_birds(files: Files) -> Dataset:
    """The recordings, with the published division as splits where its files are at hand."""
    xml = files["miml_birds.xml"]
    data = arff.read(files["miml_birds.arff"], xml=xml)
    position = {bag: k for k, bag in enumerate(data.bags.bag_ids.tolist())}
    splits = {}
    for part, name in (("train", "random_80train"), ("test", "random_20test")):
        path = files.get(f"miml_birds_{name}.arff")
        if path is None:
            return data
        ids = arff.read(path, xml=xml).bags.bag_ids.tolist()
        strangers = [bag for bag in ids if bag not in position]
        if strangers:
            raise DataError(f"bag {strangers[0]!r} is not in {files['miml_birds.arff'].name}", path=path)
        splits[part] = np.array([position[bag] for bag in ids])
    return replace(data, splits=splits)


def load_sentences(files: Files, part: str | None = None) -> Dataset:
    """All parts together, with splits, or one of them."""
    names = None if "label_list.dat" in files else _DBPEDIA_CLASSES
    return sentences.read(_folder(files), label_names=names, part=part)


def load_c45(files: Files) -> Dataset:
    """A ``.data`` file and, where published, its ``.names``."""
    names = [path for name, path in files.items() if name.endswith(".names")]
    return c45.read(_only(files, ".data"), names=names[0] if names else False)


def load_label_bag_csv(files: Files) -> Dataset:
    """A table without header: label, bag, features."""
    return csv.read(_only(files, ".csv"), layout="label_bag")


def load_pair(files: Files) -> Dataset:
    """Two ARFF files: instances, and how many of them each bag takes."""
    _folder(files)
    return arff_pair.read(_only(files, "_1.arff"))


def load_sival(files: Files) -> Dataset:
    """Eight tables whose bag numbers start again in each."""
    return matlab.read_many([files[name] for name in sorted(files)])


def _only(files: Files, suffix: str) -> Path:
    (name,) = (name for name in files if name.endswith(suffix))
    return files[name]


def _folder(files: Files) -> Path:
    """The one folder in which all the files lie; these formats are read by folder."""
    folders = sorted({path.parent for path in files.values()})
    if len(folders) > 1:
        raise DataError(
            f"the files of the set are spread over {folders[0]} and {folders[1]}; put them in one"
        )
    return folders[0]
