"""What every transformer of `bagwise.media` must do, tried on generated files of its medium."""

import json
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

import bagwise
from bagwise.base.parameters import rules_of
from bagwise.datasets import make_collages, make_documents, make_recordings, make_slides
from bagwise.errors import DataError
from bagwise.media import find_files
from bagwise.media.places import medium_of, place_columns
from bagwise.media.recipe import places_of, recipe_of, transformer_of, transformers
from bagwise.models import PooledClassifier, PooledLogisticRegression

MAKERS = {
    "audio": lambda folder: make_recordings(folder, 6, seconds=2.0, calls=(1, 3)),
    "image": lambda folder: make_collages(folder, 6, patch=24),
    "text": lambda folder: make_documents(folder, 6),
    "embeddings": lambda folder: make_slides(folder, 6, tiles=(5, 9), n_features=8, suffix=".npz"),
}
NEEDS = {"audio": ["soundfile"], "image": ["PIL", "skimage"], "text": [], "embeddings": []}
# Settings beside the defaults that change what is learned or cut.
VARIANTS = {
    "audio": [{"cut": "calls"}],
    "image": [{"cut": "superpixels"}],
    "text": [{"features": "tf-idf"}],
    "embeddings": [],
}
CASES = [
    pytest.param(cls, params, id=f"{cls.__name__}-{'-'.join(map(str, params.values())) or 'default'}")
    for cls in transformers()
    for params in ({}, *VARIANTS[cls.medium])
]
CLASSES = [pytest.param(cls, id=cls.__name__) for cls in transformers()]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made = {}

    def of(medium):
        for library in NEEDS[medium]:
            pytest.importorskip(library)
        if medium not in made:
            folder = tmp_path_factory.mktemp(medium)
            MAKERS[medium](folder)
            made[medium] = find_files(folder)
        return made[medium]

    return of


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bagwise.errors.DataWarning)
        yield


def transformed(cls, params, sources, **more):
    return cls(**params, **more).fit(sources).transform(sources)


# ---------------------------------------------------------------------- parameters


@pytest.mark.parametrize("cls", CLASSES)
def test_every_parameter_has_a_rule_and_is_stored_as_given(cls, files):
    assert set(cls._parameters) == set(cls().get_params(deep=False))
    assert list(cls().get_params(deep=False)) and {"n_jobs", "cache"} <= set(cls().get_params())
    cls()._check()
    for name, entry in cls._parameters.items():
        for rule in rules_of(entry):
            for bad in rule.bad_examples():
                if any(other.takes(bad) for other in rules_of(entry)):
                    continue
                wrong = cls(**{name: bad})
                assert getattr(wrong, name) is bad
                with pytest.raises(ValueError, match=f"{name} of {cls.__name__}"):
                    wrong.fit(files(cls.medium)[:1])


@pytest.mark.parametrize("cls", CLASSES)
def test_attributes_of_the_class(cls):
    assert cls.medium in MAKERS and cls.suffixes and isinstance(cls.version, int)
    assert all(s == s.lower() and s.startswith(".") for s in (*cls.suffixes, *cls.also))
    assert not set(cls.suffixes) & set(cls.also)
    assert "Examples" in (cls.__doc__ or "") and "Parameters" in cls.__doc__


def test_no_suffix_makes_two_media():
    suffixes = [suffix for cls in transformers() for suffix in cls.suffixes]
    assert len(suffixes) == len(set(suffixes))


# ---------------------------------------------------------------------- what comes out


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_bags_have_places_names_and_finite_numbers(cls, params, files):
    sources = files(cls.medium)
    bags = transformed(cls, params, sources)
    assert bags.bag_ids.tolist() == [source.name for source in sources]
    assert medium_of(bags.instance_info) == places_of(cls.medium)
    for name, kind in place_columns(places_of(cls.medium)).items():
        if name in bags.instance_info:
            values = bags.instance_info[name]
            assert values.dtype.kind in "OU" if kind is object else values.dtype == kind, name
    assert bags.instance_info["file"].tolist() == bags.bag_ids[bags.index].tolist()
    assert bags.dtype == np.float32
    fitted = cls(**params).fit(sources)
    assert fitted.n_features_out_ == bags.n_features == len(fitted.get_feature_names_out())


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_a_pure_function_of_each_source(cls, params, files):
    sources = list(files(cls.medium))
    given, before = list(sources), cls(**params).get_params()
    made = cls(**params).fit(sources)
    bags = made.transform(sources)
    assert sources == given and made.get_params() == before
    assert made.transform(sources).equals(bags)
    assert made.transform(sources[::-1]).equals(bags[::-1])
    for k, source in enumerate(sources):
        assert made.transform([source]).equals(bags[k : k + 1])
    assert cls(**params).fit_transform(sources).equals(bags)
    assert made.transform(bags) is bags


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_processes_and_cache_change_no_bit(cls, params, files, tmp_path):
    sources = files(cls.medium)
    bags = transformed(cls, params, sources)
    assert transformed(cls, params, sources, n_jobs=2, cache=tmp_path).equals(bags)
    assert transformed(cls, params, sources, cache=tmp_path).equals(bags)


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_names_of_files_do_not_change_the_numbers(cls, params, files):
    sources = files(cls.medium)
    by_path = transformed(cls, params, [os.fspath(source) for source in sources])
    bags = transformed(cls, params, sources)
    assert by_path.with_ids(bags.bag_ids).with_info(file=bags.instance_info["file"]).equals(bags)


# ---------------------------------------------------------------------- keeping


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_pickle_model_file_recipe_and_clone(cls, params, files, tmp_path):
    sources = files(cls.medium)
    fitted = cls(**params).fit(sources[:4])
    expected = fitted.transform(sources)
    assert pickle.loads(pickle.dumps(fitted)).transform(sources).equals(expected)
    bagwise.save(fitted, tmp_path / "media.skops")
    assert bagwise.load(tmp_path / "media.skops").transform(sources).equals(expected)
    recipe = json.loads(json.dumps(recipe_of(fitted)))
    assert transformer_of(recipe).transform(sources).equals(expected)
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(DataError, match="made by revision"):
        transformer_of({**recipe, "revision": -1})


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_a_pipeline_is_cross_validated_saved_and_loaded(cls, params, files, tmp_path):
    sources = files(cls.medium)
    if (transformed(cls, params, sources).sizes == 0).any():
        pytest.skip("a bag without instances")
    Y = np.array([[k % 2, 1 - k % 2] for k in range(6)])
    pipeline = make_pipeline(cls(**params), PooledLogisticRegression())
    assert len(cross_val_score(pipeline, sources, Y, cv=2, error_score="raise")) == 2
    pipeline.fit(sources, Y)
    bagwise.save(pipeline, tmp_path / "pipeline.skops")
    loaded = bagwise.load(tmp_path / "pipeline.skops")
    assert np.array_equal(loaded.predict(sources), pipeline.predict(sources))
    assert np.array_equal(loaded.predict(pipeline[0].transform(sources)), pipeline.predict(sources))


@pytest.mark.parametrize(("cls", "params"), CASES)
def test_training_folds_alone_are_learned_from(cls, params, files):
    """What is learned, if anything, does not change when other files do."""
    sources = files(cls.medium)
    one = cls(**params).fit(sources[:3])
    two = cls(**params).fit(sources[:3])
    two.transform(sources)
    assert recipe_of(one) == recipe_of(two)
    if one._learns():
        assert recipe_of(one) != recipe_of(cls(**params).fit(sources[3:]))


def test_the_vocabulary_of_a_fold_is_that_of_its_training_files(files):
    from bagwise.media import TextToBags

    sources = np.array(files("text"), dtype=object)
    Y = np.array([[k % 2, 1 - k % 2] for k in range(6)])
    pipeline = make_pipeline(TextToBags(features="tf-idf"), PooledClassifier(random_state=0))
    found = cross_validate(pipeline, sources, Y, cv=3, return_estimator=True, return_indices=True)
    for fitted, train in zip(found["estimator"], found["indices"]["train"]):
        alone = TextToBags(features="tf-idf").fit(sources[train])
        assert recipe_of(fitted[0]) == recipe_of(alone)
    assert len({len(fitted[0].vocabulary_) for fitted in found["estimator"]}) > 1


def test_windows_are_searched(files):
    from bagwise.media import AudioToBags

    sources = files("audio")
    Y = np.array([[k % 2, 1 - k % 2] for k in range(6)])
    pipeline = make_pipeline(AudioToBags(), PooledClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"audiotobags__window": [0.5, 1.0]}, cv=2).fit(sources, Y)
    assert search.predict(sources).shape == Y.shape and len(search.cv_results_["params"]) == 2
    assert bagwise.inspection.annotate(search, sources).shape == (
        search.best_estimator_[0].transform(sources).n_instances,
    )


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("cls", CLASSES)
def test_nothing_is_refused(cls):
    for nothing in ([], ()):
        with pytest.raises(DataError, match="0 sample"):
            cls().fit_transform(nothing)


@pytest.mark.parametrize("cls", CLASSES)
def test_spoiled_files_are_one_line_that_names_them(cls, files, tmp_path):
    source = files(cls.medium)[0]
    content = Path(source.path).read_bytes()
    suffix = os.path.splitext(source.path)[1]
    rng = np.random.default_rng(0)
    spoiled = {
        "empty": b"",
        "short": content[:20],
        "half": content[: len(content) // 2],
        "noise": rng.bytes(500),
        "head": rng.bytes(40) + content[40:],
        "missing": None,
    }
    for name, data in spoiled.items():
        path = tmp_path / f"{name}{suffix}"
        if data is not None:
            path.write_bytes(data)
        try:
            cls().transform([path])
        except DataError as error:
            assert f"{name}{suffix}: " in str(error) and "\n" not in str(error), name
            assert "cannot be decoded (" not in str(error), f"{name}: the medium should say what is wrong"
        else:
            assert name in ("half", "head") or cls.medium == "text", name
