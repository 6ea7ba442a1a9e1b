"""The base of the transformers, tried on a small medium: names, order, errors, learning, cache."""

import os
import pickle

import numpy as np
import pytest
from media_toy import LinesToBags
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from bagwise import Bags
from bagwise.errors import DataError, DataWarning
from bagwise.media import Source, find_files
from bagwise.media.places import audio_places, image_places, medium_of, place_columns, slide_places
from bagwise.models import PooledClassifier
from bagwise.utils.files import lock


@pytest.fixture
def folder(tmp_path):
    """Eight files; those with a large first number carry the label."""
    rng = np.random.default_rng(0)
    root = tmp_path / "files"
    (root / "deep").mkdir(parents=True)
    for k in range(8):
        rows = rng.normal(size=(2 + k % 3, 2)) + 5 * (k % 2)
        text = "\n".join(f"{a:.4f} {b:.4f}" for a, b in rows)
        (root / ("deep" if k % 2 else ".") / f"file{k}.num").write_text(text)
    (root / ".hidden.num").write_text("1 2")
    (root / "notes.md").write_text("not ours")
    return root


Y = np.array([[0], [0], [0], [0], [1], [1], [1], [1]])  # in the order of names: deep/ comes first


def test_files_are_found_by_suffix_and_named_from_their_folder(folder):
    found = find_files(folder, (".num",))
    assert [s.name for s in found][:2] == ["deep/file1.num", "deep/file3.num"]
    assert len(found) == 8 and os.path.exists(found[0])
    assert next(s.name for s in find_files([folder / "file0.num", folder / "deep"], (".num",))) == "file0.num"
    assert len(find_files(folder, (".num",), leave_out=[folder / "file0.num"])) == 7
    with pytest.raises(DataError, match="no such file or folder"):
        find_files(folder / "nowhere")
    (folder / "deep" / "file0.num").write_text("1 2")
    with pytest.raises(DataError, match=r"two files are called 'file0\.num'"):
        find_files([folder, folder / "deep"])


def test_a_folder_is_walked_once_where_links_lead_in_circles(folder):
    (folder / "deep" / "up").symlink_to(folder, target_is_directory=True)
    (folder / "slide.zarr").mkdir()
    (folder / "slide.zarr" / "0.0").write_text("")
    names = [s.name for s in find_files(folder)]
    assert len(names) == 10 and "slide.zarr" in names


def test_bags_know_their_files_and_places(folder):
    bags = LinesToBags().fit_transform(folder)
    assert bags.bag_ids[0] == "deep/file1.num" and bags.feature_names == ("a", "b")
    assert bags.instance_info["file"][0] == "deep/file1.num"
    assert medium_of(bags.instance_info) == "text"
    by_path = LinesToBags().fit_transform([os.fspath(folder / "file0.num")])
    assert by_path.bag_ids[0] == (folder / "file0.num").as_posix()
    one = LinesToBags().fit_transform([Source(os.fspath(folder / "file0.num"), "mine")])
    assert one.bag_ids[0] == "mine" and np.array_equal(one.X, by_path.X)


def test_a_name_may_hold_any_character(folder):
    (folder / "a#1.num").write_text("1 2")
    bags = LinesToBags().fit_transform(folder)
    assert bags.bag_ids[0] == bags.instance_info["file"][0] == "a#1.num"
    one = LinesToBags().fit_transform([Source(os.fspath(folder / "a#1.num"), "#1")])
    assert one.bag_ids.tolist() == ["#1"] == one.instance_info["file"].tolist()


def test_things_in_memory_are_numbered(folder):
    bags = LinesToBags(2.0).fit_transform([np.ones((2, 2)), np.zeros((0, 2)), np.ones((1, 2))])
    assert bags.sizes.tolist() == [2, 0, 1] and not bags.has_bag_ids
    assert set(bags.instance_info["file"]) == {""} and bags.X.max() == 2.0
    mixed = LinesToBags().fit_transform([np.ones((2, 2)), os.fspath(folder / "file0.num")])
    assert mixed.bag_ids.tolist() == ["#0", (folder / "file0.num").as_posix()]


def test_all_files_that_cannot_be_read_are_named(folder):
    (folder / "bad.num").write_text("1 2 3")
    (folder / "worse.num").write_bytes(b"\xff\xfe")
    with pytest.raises(
        DataError, match=r"2 of the sources.*bad\.num: expected two.*worse\.num: cannot be dec"
    ):
        LinesToBags().fit_transform(folder)
    named, unreadable = LinesToBags().read(find_files(folder, (".num",)))
    assert len(named) == 8 and [u.path for u in unreadable] == ["bad.num", "worse.num"]
    with pytest.raises(DataError, match=r"bad\.num: expected"):
        LinesToBags().read(find_files(folder, (".num",)), strict=True)
    with pytest.raises(DataError, match="No such file"):
        LinesToBags().fit_transform([folder / "nowhere.num"])


def test_what_is_learned_is_learned_in_fit_alone(folder):
    files = find_files(folder, (".num",))
    with pytest.raises(NotFittedError):
        LinesToBags(centre=True).transform(files)
    fitted = LinesToBags(centre=True).fit(files[:3])
    seen = LinesToBags().transform(files[:3])
    assert np.allclose(fitted.mean_, seen.X.mean(axis=0))
    before = fitted.mean_.copy()
    fitted.transform(files)
    assert np.array_equal(fitted.mean_, before)
    assert np.allclose(fitted.transform(files[:3]).X, seen.X - before)


def test_a_pipeline_takes_raw_files_and_bags_alike(folder):
    files = find_files(folder, (".num",))
    pipeline = make_pipeline(LinesToBags(), PooledClassifier(random_state=0))
    scores = cross_val_score(pipeline, files, Y, cv=4)
    bags = LinesToBags().transform(files)
    assert np.array_equal(scores, cross_val_score(pipeline, bags, Y, cv=4))
    search = GridSearchCV(pipeline, {"linestobags__scale": [0.5, 2.0]}, cv=2).fit(files, Y)
    assert search.predict(files).shape == (8, 1)
    assert np.array_equal(pipeline.fit(files, Y).predict(files), pipeline.predict(bags))


def test_bags_of_other_features_are_refused():
    with pytest.raises(DataError, match="these bags have 3 features, LinesToBags gives 2"):
        LinesToBags().transform(Bags([[1.0, 2.0, 3.0]], [0, 1]))
    with pytest.raises(DataError, match="feature 1 of these bags is 'c', LinesToBags gives 'b'"):
        LinesToBags().transform(Bags([[1.0, 2.0]], [0, 1], feature_names=["a", "c"]))
    with pytest.raises(DataError, match="these are bags already"):
        LinesToBags(centre=True).fit(Bags([[1.0, 2.0]], [0, 1]))


@pytest.mark.parametrize("wrong", [[], (), "file.num"])
def test_nothing_or_one_path_is_no_list(wrong):
    with pytest.raises(DataError, match=r"0 sample|expected a list of sources"):
        LinesToBags().fit_transform(wrong)


def test_an_empty_folder_says_what_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"holds no text files \(\.num\)"):
        LinesToBags().fit(tmp_path)


def test_other_processes_make_the_same_bits(folder):
    one, two = (LinesToBags(n_jobs=n).fit_transform(folder) for n in (1, 2))
    assert one.equals(two)


def test_clone_and_pickle_keep_everything(folder):
    fitted = LinesToBags(3.0, centre=True).fit(folder)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.transform(folder).equals(fitted.transform(folder))
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(ValueError, match="scale of LinesToBags must be a number above 0"):
        LinesToBags(-1.0).fit(folder)


# ---------------------------------------------------------------------- cache


class Counting(LinesToBags):
    """Counts the parts that are really made."""

    made: list = []

    def _part(self, source):
        self.made.append(source)
        return super()._part(source)


def test_a_new_file_costs_only_itself(folder, tmp_path):
    Counting.made.clear()
    cached = Counting(cache=tmp_path / "cache")
    first = cached.fit_transform(folder)
    assert len(Counting.made) == 8
    assert cached.fit_transform(folder).equals(first) and len(Counting.made) == 8
    (folder / "new.num").write_text("1 2")
    cached.transform(folder)
    assert len(Counting.made) == 9
    (folder / "new.num").rename(folder / "renamed.num")  # by content, not by name
    assert cached.transform(folder).bag_ids[-1] == "renamed.num" and len(Counting.made) == 9
    Counting(2.0, cache=tmp_path / "cache").transform(folder)  # another parameter, another part
    assert len(Counting.made) == 18


def test_a_damaged_entry_is_made_again(folder, tmp_path):
    Counting.made.clear()
    cached = Counting(cache=tmp_path / "cache")
    first = cached.fit_transform(folder)
    for k, path in enumerate(sorted((tmp_path / "cache").rglob("*.npz"))):
        data = path.read_bytes()
        path.write_bytes([data[: len(data) // 2], b"", data[:60] + b"\0" * 30 + data[90:]][k % 3])
    assert cached.fit_transform(folder).equals(first) and len(Counting.made) == 16
    assert cached.fit_transform(folder).equals(first) and len(Counting.made) == 16


# ---------------------------------------------------------------------- places


def test_places_are_typed_and_known_by_their_columns():
    box = {"file": ["a"], "x": [1], "y": [2], "width": [3], "height": [4]}
    assert medium_of(box) == "image" and image_places(box).polygon is None
    assert image_places(box).x.dtype == np.float64
    assert medium_of({**box, "level": [0]}) == "slide" and slide_places({**box, "level": [0]}).level[0] == 0
    assert medium_of({}) is None and place_columns("text")["start_char"] is np.int64
    with pytest.raises(DataError, match="no place in audio: start, end, low, high missing"):
        audio_places(box)


class _Guessing(LinesToBags):
    def _part(self, source):
        return super()._part(source)._replace(notes=("was guessed",))


def test_what_was_guessed_is_said_once_also_from_the_cache(folder, tmp_path):
    for _ in range(2):
        with pytest.warns(DataWarning, match=r"deep/file1\.num, .* and 3 more: was guessed") as caught:
            _Guessing(cache=tmp_path / "kept").fit_transform(folder)
        assert len(caught) == 1


# ---------------------------------------------------------------------- odd places


def test_a_cache_that_cannot_be_written_is_said_and_stops_nothing(folder, tmp_path):
    (tmp_path / "taken").write_text("a file where a folder should be")
    with pytest.warns(DataWarning, match=r"and 3 more: made, but not kept in the cache .*taken"):
        bags = LinesToBags(cache=tmp_path / "taken").fit_transform(folder)
    assert len(bags) == 8


def test_what_killed_runs_left_is_removed(folder, tmp_path):
    LinesToBags(cache=tmp_path / "cache").fit_transform(folder)
    entry = next((tmp_path / "cache").rglob("*.npz"))
    left, fresh = (entry.with_name(f".{entry.name}-{name}") for name in ("aaaaaaaa", "bbbbbbbb"))
    for path in (left, fresh):
        path.mkdir()
        (path / ".lock").touch()
    entry.unlink()
    with open(fresh / ".lock", "rb") as alive:
        assert lock(alive)
        LinesToBags(cache=tmp_path / "cache").fit_transform(folder)
    assert entry.exists() and fresh.exists() and not left.exists()


def test_pipes_and_odd_names_are_refused(folder):
    os.mkfifo(folder / "pipe.num")
    with pytest.raises(DataError, match=r"pipe\.num: is a pipe, not a file"):
        LinesToBags().fit_transform(folder)
    os.unlink(folder / "pipe.num")
    odd = os.path.join(os.fsencode(folder), b"odd\xff.num")
    try:
        with open(odd, "w") as file:
            file.write("1 2")
    except OSError:
        pytest.skip("this file system has UTF-8 names alone")
    with pytest.raises(DataError, match="its name is not UTF-8"):
        LinesToBags().fit_transform(folder)


def test_bags_stay_bags_where_frames_are_wanted(folder):
    import sklearn

    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(LinesToBags().fit_transform(folder), Bags)
        assert isinstance(LinesToBags().fit(folder).transform(folder), Bags)
