import numpy as np
import pytest

from bagwise.bags import Bags
from bagwise.datasets.letters import find_letters, make_letter_words, read_letters, words_of
from bagwise.errors import DataError


@pytest.fixture
def letters(tmp_path):
    """Three rows of each letter, all different."""
    rng = np.random.default_rng(0)
    path = tmp_path / "letter-recognition.data"
    rows = np.unique(rng.integers(0, 16, (500, 16)), axis=0)[:78]
    path.write_text("".join(f"{chr(65 + k % 26)},{','.join(map(str, row))}\n" for k, row in enumerate(rows)))
    return read_letters(path)


def test_reading(letters):
    assert len(letters) == 78 and letters.bags.n_features == 16
    assert letters.label_sets[27] == ["B"] and letters.bags.bag_ids[0] == 1
    assert len(letters["train"]) == 78 and len(letters["test"]) == 0


@pytest.mark.parametrize("line", ["a,1", "A,1,2", "A," + ",".join("x" * 16), "lettr,x-box"])
def test_reading_something_else(tmp_path, line):
    path = tmp_path / "letter-recognition.data"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=r"letter-recognition\.data.*capital letter and 16 numbers"):
        read_letters(path)


def test_words_in_the_order_of_the_file(letters):
    data = make_letter_words("'Twas snicker-snack! --- and", letters)
    assert words_of(data) == ["TWAS", "SNICKERSNACK", "AND"]
    assert data.bags.bag_ids.tolist() == ["1_twas", "2_snickersnack", "3_and"]
    s_rows = data.bags.instance_info["row"][data.instance_Y == 18]
    assert s_rows.tolist() == [19, 45, 71]
    assert np.array_equal(data.bags.X, letters.bags.X[data.bags.instance_info["row"] - 1])
    assert data.label_sets[0] == ["A", "S", "T", "W"]


def test_fresh_draws_use_no_row_twice(letters):
    data = make_letter_words(["aaa", "bbb"], letters, random_state=0)
    assert sorted(data.bags.instance_info["row"].tolist()) == [1, 2, 27, 28, 53, 54]
    with pytest.raises(DataError, match="needs 4 rows with the letter A, there are 3"):
        make_letter_words(["aaaa"], letters, random_state=0)


def test_letters_are_found_by_their_features(letters):
    written = make_letter_words(["deaf", "crow"], letters, random_state=1)
    found = find_letters(Bags(written.bags.X.astype(np.float64), written.bags.offsets), letters)
    assert found.bags.equals(written.bags) and np.array_equal(found.instance_Y, written.instance_Y)
    with pytest.raises(DataError, match="instance 3 is none"):
        X = written.bags.X.copy()
        X[3] = 99
        find_letters(written.bags.with_X(X), letters)
