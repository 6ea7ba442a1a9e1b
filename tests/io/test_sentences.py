import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import Dataset
from bagwise.errors import DataError
from bagwise.io import sentences

TEXT = {
    "vocabs.txt": "bird, 0\nsings, 1\na,b, 2\n",
    "train-data.dat": "<2> <3> 0 1 0 <1> 2\n<1> <0>\n",
    "train-label.dat": "1 1\n0 0\n",
    "train-sentlabel.dat": "<1 0><0 1>\n<0 0>\n",
    "test-data.dat": "<1> <2> 2 2\r\n",
    "test-label.dat": "0 1\r\n",
    "test-sentlabel.dat": "<0 1>\r\n",
}


def folder_of(folder, **changes):
    for name, text in (
        TEXT | {k.replace("__", "-").replace("_dat", ".dat"): v for k, v in changes.items()}
    ).items():
        if text is not None:
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def refused(folder, name, line, word, **options):
    with pytest.raises(DataError) as caught:
        sentences.read(folder, **options)
    assert (caught.value.path, caught.value.line) == (str(folder / name if name else folder), line)
    assert word in caught.value.message


def test_values_by_hand(tmp_path):
    data = sentences.read(folder_of(tmp_path), label_names=["nature", "sport"])
    assert data.bags.is_sparse
    assert data.bags.X.toarray().tolist() == [[2, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 2]]
    assert data.bags.X.nnz == 4
    assert data.bags.offsets.tolist() == [0, 2, 3, 4]
    assert data.bags.feature_names == ("bird", "sings", "a,b")
    assert data.bags.bag_ids.tolist() == ["train/1", "train/2", "test/1"]
    assert data.label_sets == [["nature", "sport"], [], ["sport"]]
    assert data.instance_Y.tolist() == [0, 1, -1, 1]
    assert {k: v.tolist() for k, v in data.splits.items()} == {"train": [0, 1], "test": [2]}
    assert data["test"].bags.bag_ids.tolist() == ["test/1"]


def test_parts_and_label_list(tmp_path):
    folder = folder_of(tmp_path, label_list_dat="gnp, money-fx")
    (folder / "test-sentlabel.dat").unlink()
    assert sentences.read(folder).instance_Y is None  # known for one part only
    train = sentences.read(folder, part="train")
    assert train.label_names == ("gnp", "money-fx")
    assert train.instance_Y.tolist() == [0, 1, -1]
    assert len(sentences.read(folder / "test-data.dat")) == 1
    assert len(sentences.read(folder / "test-data.dat", part=["test", "train"])) == 3
    with pytest.raises(ValueError, match="part must be among"):
        sentences.read(folder, part="dev")
    refused(folder, "valid-data.dat", None, "no such file", part="valid")


def test_document_without_sentences(tmp_path):
    folder = folder_of(tmp_path, train__data_dat="<0>\n<1> <1> 2\n", train__sentlabel_dat="\n<0 0>\n")
    data = sentences.read(folder, part="train")
    assert data.bags.sizes.tolist() == [0, 1]
    assert data.instance_Y.tolist() == [-1]


def test_packed(tmp_path):
    folder = folder_of(tmp_path)
    for path in list(folder.iterdir()):
        (folder / (path.name + ".gz")).write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(sentences.read(folder)) == 3
    assert len(sentences.read(folder / "train-data.dat.gz")) == 2


DATA, LABEL, SENT = "train-data.dat", "train-label.dat", "train-sentlabel.dat"


@pytest.mark.parametrize(
    ("name", "text", "line", "word"),
    [
        (DATA, "<2> <3> 0 1 0 <1> 2\n<2> <1> 0\n", 2, "2 sentences announced, 1 found"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> <2> 0\n", 2, "2 words announced, 1 found"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> 0 <1> 0\n", 2, "0 words announced, 1 found"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> <1> 3\n", 2, "word 3 is not in the vocabulary of 3"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n1 <1> 0\n", 2, "begins with its number of sentences"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> <1> x\n", 2, "the character 'x'"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> <1> -1\n", 2, "the character '-'"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> <1 0\n", 2, "without its partner"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> < <1> 0\n", 2, "without a number"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> > <1> 0\n", 2, "without a number"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n<1> <1> 99999999999999999999\n", 2, "too large"),
        (DATA, b"<2> <3> 0 1 0 <1> 2\n\xff\xfe\n", 2, "among numbers"),
        (DATA, "\n\n", None, "no documents"),
        (DATA, "<2> <3> 0 1 0 <1> 2\n", LABEL, "2 rows of labels for the 1 documents"),
        (LABEL, "1 1\n0\n", 2, "1 labels in this row, expected 2"),
        (LABEL, "1 1\n0 2\n", 2, "a label is 2"),
        (LABEL, "1 1\n<0> 0\n", 2, "the character '<'"),
        (LABEL, "1 1\n", None, "1 rows of labels for the 2 documents"),
        (LABEL, "", None, "no labels"),
        (SENT, "<1 0><0 1>\n<0>\n", 2, "a sentence with 1 labels, expected 2"),
        (SENT, "<1 0><0 1>\n<0 0><0 0>\n", 2, "2 sentences, the data have 1"),
        (SENT, "<1 0><1 1>\n<0 0>\n", 1, "several labels"),
        (SENT, "<1 0><0 1>\n", None, "1 documents, the data have 2"),
        (SENT, "<1 0><0 1>\n<0 1>\n", 2, "which its bag has not"),
        (SENT, "0 1>>\n", 1, "without its partner"),
        (SENT, "", None, "0 documents, the data have 2"),
        (SENT, "<1 0><0 1>\n<0 0\n", 2, "without its partner"),
        (SENT, "<1 0><0 1>\n0 0>\n", 2, "without its partner"),
        (SENT, "<1 0><0 1>\n<0 <0>>\n", 2, "without its partner"),
        (SENT, "<1 0><0 1\n><0 0>\n", 1, "without its partner"),
        (SENT, "<1 0><0 1>\n<0 0> 1\n", 2, "a number outside"),
        ("vocabs.txt", "bird, 0\nsings\n", 2, "expected <word>, <index>"),
        ("vocabs.txt", "bird, 0\nsings, 0\n", 2, "occurs twice"),
        ("vocabs.txt", "bird, 0\nsings, 2\n", None, "no word has the index 1"),
        ("vocabs.txt", b"bird, 0\n\xff, 1\n", 2, "not UTF-8"),
    ],
)
def test_broken_text_names_the_line(tmp_path, name, text, line, word):
    folder = folder_of(tmp_path)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    if isinstance(line, str):  # the fault shows in another file
        name, line = line, None
    refused(folder, name, line, word)


def test_missing_files_and_bombs(tmp_path):
    folder = folder_of(tmp_path)
    refused(
        folder,
        "test-label.dat",
        1,
        "2 labels in this row, expected 3",
        label_names=["a", "b", "c"],
        part="test",
    )
    (folder / "test-label.dat").write_text("0 1 0\n")
    (folder / "test-sentlabel.dat").unlink()
    refused(folder, "", None, "different numbers of labels: train 2, test 3")
    (folder / "train-label.dat").unlink()
    refused(folder, "", None, "the part train has no train-label.dat")
    (folder / "train-data.dat").unlink()
    (folder / "train-data.dat.gz").write_bytes(gzip.compress(b" " * 1_000_000))
    refused(folder, "train-data.dat.gz", None, "larger max_bytes", max_bytes=1000)
    (folder / "vocabs.txt").unlink()
    refused(folder, "vocabs.txt", None, "no such file")
    refused(tmp_path / "nowhere", "", None, "no such folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "", None, "no train-, valid- or test-data.dat")


def test_recognises(tmp_path):
    folder = folder_of(tmp_path)
    assert sentences.recognises(folder, b"")
    assert sentences.recognises(folder / "train-data.dat", b"<2> ")
    assert not sentences.recognises(folder / "train-label.dat", b"1 1")
    assert not sentences.recognises(folder.parent, b"")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([DATA, LABEL, SENT, "vocabs.txt"]), st.integers(0, 23), st.sampled_from(" <>0129,\nx"))
def test_any_damage_is_a_data_error(tmp_path_factory, name, place, letter):
    folder = folder_of(tmp_path_factory.mktemp("fuzz"))
    text = TEXT[name]
    (folder / name).write_text(text[:place] + letter + text[place + 1 :])
    try:
        assert isinstance(sentences.read(folder), Dataset)
    except DataError as error:
        assert error.path
