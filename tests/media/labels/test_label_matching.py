"""Names in labels and files at hand."""

import pytest

from bagwise.errors import DataError
from bagwise.media.labels import read_labels
from bagwise.media.labels.matching import match_files


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("x/a.wav", "x/a.wav"),
        ("./x/a.wav", "x/a.wav"),
        ("x\\a.wav", "x/a.wav"),
        ("x/a", "x/a.wav"),
        ("C:\\data\\x\\a.wav", "x/a.wav"),
        ("/home/me/x/a.wav", "x/a.wav"),
        ("a.wav", "x/a.wav"),
        ("a", "x/a.wav"),
        ("A.WAV", "x/a.wav"),
        ("a.mp3", "x/a.wav"),
        ("https://host/data/x/a.wav?token=1", "x/a.wav"),
        ("/data/local-files/?d=x/a.wav", "x/a.wav"),
    ],
)
def test_forms_of_a_name(name, file):
    assert match_files([name], ["x/a.wav", "y/b.wav"]) == ({name: file}, [])


def test_the_nearest_match_wins():
    files = ["x/a.wav", "y/a.wav"]
    assert match_files(["y/a.wav", "x/a.wav"], files)[0] == {"y/a.wav": "y/a.wav", "x/a.wav": "x/a.wav"}
    # z/a.wav is another file that is not here: it must not take y/a.wav by its bare name
    assert match_files(["y/a.wav", "z/a.wav"], ["y/a.wav"]) == ({"y/a.wav": "y/a.wav"}, ["z/a.wav"])


def test_ambiguity_names_both():
    with pytest.raises(DataError, match=r"'a.wav' could mean 'x/a.wav' or 'y/a.wav'"):
        match_files(["a.wav"], ["x/a.wav", "y/a.wav"])
    with pytest.raises(DataError, match=r"'a' could mean 'a.wav' or 'a.mp3'"):
        match_files(["a"], ["a.wav", "a.mp3"])
    with pytest.raises(DataError, match=r"both 'x/a.wav' and 'z/a.wav' could mean 'a.wav'"):
        match_files(["x/a.wav", "z/a.wav"], ["a.wav"])


def test_the_gathered_folder_may_stand_before_the_names():
    assert match_files(["x/a.wav", "z/a.wav"], ["a.wav"], "x") == ({"x/a.wav": "a.wav"}, ["z/a.wav"])


def test_bags_inside_a_file():
    assert match_files(["7"], ["t.csv#7", "t.csv#8"])[0] == {"7": "t.csv#7"}


def test_folders():
    files = ["wren/a.wav", "wren/b.wav", "deep/robin/c.wav"]
    found = read_labels("folders", files)
    assert found.bag_labels == {"wren/a.wav": ["wren"], "wren/b.wav": ["wren"], "deep/robin/c.wav": ["robin"]}
    found = read_labels(None, files)
    assert found.label_names == ["robin", "wren"]
    assert found.said == (
        "names of folders as labels (no labels were given, and all files lie in folders): robin, wren"
    )
    found = read_labels(None, [*files, "loose.wav"])
    assert not found.bag_labels and len(found.files_without) == 4 and found.said == "no labels given"
    assert read_labels("folders", [*files, "loose.wav"]).files_without == ["loose.wav"]
    with pytest.raises(DataError, match="one folder per label"):
        read_labels("folders", ["a.wav"])


def test_a_folder_of_two_kinds_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("file,labels\na.wav,wren\n")
    (tmp_path / "b.txt").write_text("0.0\t1.0\twren\n")
    with pytest.raises(DataError, match=r"different kinds: a.csv is table.* and b.txt is Audacity labels"):
        read_labels(tmp_path, ["a.wav", "b.wav"], "audio")
    with pytest.raises(DataError, match="no such file or folder"):
        read_labels(tmp_path / "x.csv", ["a.wav"])
