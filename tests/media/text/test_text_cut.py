"""Sentences, paragraphs and windows: their spans are exact, and full stops are told apart."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.media import TextToBags
from bagwise.media.text.decode import paragraphs, sentences

PIECES = st.sampled_from(
    [
        "Dr. ",
        "e.g. ",
        "U.S. ",
        "3.14 ",
        "No. 5 ",
        "word ",
        "Word ",
        "end. ",
        "why? ",
        '"Yes!" ',
        "...",
        "\n",
        "\n\n",
    ]
    + [
        "# head\n",
        "- item\n",
        "1. first\n",
        "你好。",
        "「是。」",
        "é",
        "😀 ",
        "(",
        ")",
        "”",
        "\t",
        "\u3000",
        "a.b",
        ".",
        " ",
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200)


def parts(text, cut=sentences):
    return [text[a:b] for a, b in cut(text).tolist()]


@pytest.mark.parametrize(
    "text",
    [
        "Mr. Smith went home.|He slept.",
        "It costs 3.50 dollars.|Cheap!|Really?|Yes.",
        "Prof. A. B. Li and J. R. R. Tolkien met.|They talked.",
        "See Fig. 3, Eq. 2 and p. 5 of vol. 2.|Then stop.",
        "Birds, e.g. wrens, i.e. small ones, sing etc.|Others do not.",
        "He joined the U.S. Army in Jan. 1990.|It was cold.",
        "She lives in the U.S.|He does not.",
        '"Why?" he asked.|"Because!" she said.|(Nobody heard.)|The end',
        "He said “Stop.”|Then he left.",
        "Wait... what?|Oh.|Well... Then.".replace("Well... Then", "Well...|Then"),
        "Am 3. Mai regnete es.|Im Jahr 1995.|Das war z.B. nass.",
        "他说：「你好。」|然后走了。|再见！|真的吗？",
        "I said no.|Then we left.|No. 5 is alive.",
        "Read more at example.com.|Version 1.2.3 is out.",
        "1. First thing.|2. Second thing.".replace("|", "\n|"),
        "He won 3.|Then he left.",
        "¿Qué?|¡Nada!|Bien.",
        "End of a line.\n|Next line.\n\n|New paragraph without a stop\n\n|Last",
    ],
)
def test_sentences_as_a_reader_would_cut(text):
    expected = [part.strip() for part in text.split("|")]
    whole = text.replace("。|", "。").replace("」|", "」").replace("！|", "！").replace("|", " ")
    assert parts(whole) == expected


def test_headings_and_items_stand_alone():
    text = "# On birds\nThey sing. They fly.\n- a wren\n- a robin\n\n## More\nEnd"
    assert parts(text) == ["# On birds", "They sing.", "They fly.", "- a wren", "- a robin", "## More", "End"]


def test_paragraphs():
    text = "\n\n One.\nStill.\n \t\nTwo.\n\n***\n\nThree"
    assert parts(text, paragraphs) == ["One.\nStill.", "Two.", "Three"]


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from([sentences, paragraphs]))
def test_spans_index_the_text_and_lose_no_word(text, cut):
    spans = cut(text)
    assert spans.dtype == np.int64 and spans.shape[1:] == (2,)
    starts, ends = spans[:, 0], spans[:, 1]
    assert (starts < ends).all() and (ends[:-1] <= starts[1:]).all()
    for a, b in spans.tolist():
        assert text[a:b] == text[a:b].strip() and any(c.isalnum() for c in text[a:b])
    covered = np.zeros(len(text), dtype=bool)
    for a, b in spans.tolist():
        covered[a:b] = True
    assert not any(c.isalnum() and not inside for c, inside in zip(text, covered))


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from(["sentences", "paragraphs", "windows"]), st.integers(1, 5))
def test_places_hold_the_text(text, cut, window):
    maker = TextToBags(cut, window=window, n_features=16)
    from bagwise.media.text.decode import clean

    part = maker._one(clean(text), None)
    for a, b, said in zip(part.places["start_char"], part.places["end_char"], part.places["text"]):
        assert clean(text)[a:b] == said


def test_windows_cover_all_words_and_overlap_by_half():
    words = [f"w{k}" for k in range(23)]
    bags = TextToBags("windows", window=10).fit_transform([" ".join(words)])
    texts = bags.instance_info["text"].tolist()
    assert [t.split()[0] for t in texts] == ["w0", "w5", "w10", "w15"]
    assert texts[-1].split()[-1] == "w22" and len(texts[0].split()) == 10
    apart = TextToBags("windows", window=10, step=10).fit_transform([" ".join(words)])
    assert apart.sizes.tolist() == [3]
    assert TextToBags("windows", window=50).fit_transform(["one two"]).sizes.tolist() == [1]
    with pytest.raises(ValueError, match="words are lost"):
        TextToBags("windows", window=5, step=6).fit(["a"])


@pytest.mark.parametrize(
    "bad",
    [".", " ", ". ", "\n \n", "#", "\n", "\"'", '."', "a. ((((((", "。", "# \n", "- a\n", "1. ", "A. B"],
)
def test_time_grows_with_the_length_alone(bad):
    text = bad * (300_000 // len(bad))
    start = time.process_time()
    sentences(text), paragraphs(text)
    assert time.process_time() - start < 5
