"""Hashing and tf-idf against scikit-learn's, word by word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.utils.murmurhash import murmurhash3_32

from bagwise.errors import DataError
from bagwise.media import TextToBags
from bagwise.media.text.tokens import hashed, hashes, learn_vocabulary, terms, tf_idf, tokens, word_bounds

DOCUMENTS = [
    "The quick brown fox. The naïve café, the überstraße! x_1 a ab 42",
    "Fox and fox and ΣΊΣΥΦΟΣ; don't 😀 stop. The end of the fox.",
    "Ещё раз о птицах. Птицы поют — и поют.",
]
ALPHABET = st.text(st.sampled_from("ab AB.é_😀ß1\nЖ"), max_size=80)


def spans_of(text):
    return np.array([[0, len(text)]])


@pytest.mark.parametrize("n_grams", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("signs", [True, False])
def test_hashing_is_that_of_scikit_learn(n_grams, signs):
    ours = TextToBags(n_features=50, n_grams=n_grams, alternate_sign=signs)
    bags = ours.fit_transform(DOCUMENTS)
    theirs = HashingVectorizer(n_features=50, ngram_range=n_grams, alternate_sign=signs)
    expected = theirs.transform(bags.instance_info["text"].tolist())
    np.testing.assert_allclose(bags.X.toarray(), expected.toarray(), atol=1e-6)


@pytest.mark.parametrize(
    "settings_", [{}, {"min_df": 2}, {"max_df": 0.4}, {"max_terms": 5}, {"sublinear": True}]
)
@pytest.mark.parametrize("n_grams", [(1, 1), (1, 2)])
def test_tf_idf_is_that_of_scikit_learn(settings_, n_grams):
    ours = TextToBags(features="tf-idf", n_grams=n_grams, **settings_).fit(DOCUMENTS[:2])
    train = TextToBags().fit_transform(DOCUMENTS[:2]).instance_info["text"].tolist()
    names = {"max_terms": "max_features", "sublinear": "sublinear_tf"}
    theirs = TfidfVectorizer(ngram_range=n_grams, **{names.get(k, k): v for k, v in settings_.items()}).fit(
        train
    )
    if "max_terms" not in settings_:  # ties among the rarest may fall otherwise
        assert list(ours.vocabulary_) == list(theirs.get_feature_names_out())
        bags = ours.transform(DOCUMENTS)
        expected = theirs.transform(bags.instance_info["text"].tolist())
        np.testing.assert_allclose(bags.X.toarray(), expected.toarray(), atol=1e-6)
    assert len(ours.vocabulary_) == len(theirs.vocabulary_) == ours.n_features_out_


@settings(max_examples=60, deadline=None)
@given(st.lists(ALPHABET, min_size=1, max_size=4))
def test_any_text_counts_as_in_scikit_learn(texts):
    whole, spans, at = "\n".join(texts), [], 0
    for text in texts:
        spans.append((at, at + len(text)))
        at += len(text) + 1
    found = tokens(whole, np.array(spans))
    X = hashed(found, len(texts), 13, n_grams=(1, 2))
    Z = HashingVectorizer(n_features=13, ngram_range=(1, 2)).transform(texts)
    np.testing.assert_allclose(X.toarray(), Z.toarray(), atol=1e-6)


def test_hashes_of_words_of_every_length():
    words = ["ab"] + ["é" * n + "z" * m for n in range(1, 6) for m in range(1, 4)]
    found = tokens(" ".join(words), np.array([[0, len(" ".join(words))]]))
    h, first = hashes(found, 1, 7)
    assert terms(found, 1, first) == words
    assert h.tolist() == [murmurhash3_32(word, seed=7) for word in words]


def test_scripts_without_blanks_give_pairs():
    text = "我喜欢鸟。 ไก่"
    found = tokens(text, np.array([[0, len(text)]]))
    _, first = hashes(found, 1, 0)
    assert terms(found, 1, first)[:3] == ["我喜", "喜欢", "欢鸟"]
    assert len(word_bounds("我喜欢 two words")) == 5


def test_unknown_words_and_empty_parts():
    known = learn_vocabulary([(tokens("one two", spans_of("one two")), 1)])
    X = tf_idf(tokens("three !", spans_of("three !")), 1, known)
    assert X.shape == (1, 2) and X.nnz == 0
    with pytest.raises(DataError, match="no term is left"):
        learn_vocabulary([(tokens("a ! b", spans_of("a ! b")), 1)])


def test_nothing_is_learned_from_test_texts():
    maker = TextToBags(features="tf-idf").fit(DOCUMENTS[:1])
    before = maker.idf_.copy()
    maker.transform(DOCUMENTS)
    assert np.array_equal(before, maker.idf_) and "птицы" not in maker.vocabulary_
