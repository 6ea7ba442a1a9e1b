"""Encodings, HTML, tables, and whatever else may be in a file that is called text."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from bagwise.errors import DataError, DataWarning, OptionalDependencyError
from bagwise.media import TextToBags
from bagwise.media.text.decode import decode, strip_html
from bagwise.media.text.tables import rows_of_table

TEXT = "Zwölf Vögel. Ein „Zaunkönig“ — 20 € bezahlt!\n\nÉté."


@pytest.mark.parametrize(
    "name", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252"]
)
def test_encodings(name):
    assert decode(TEXT.replace("\n", "\r\n").encode(name)).text == TEXT
    assert decode(TEXT.encode(name.replace("-sig", "")), name).text.removeprefix("\ufeff") == TEXT


def test_what_is_guessed_is_said(tmp_path):
    (tmp_path / "old.txt").write_bytes("Zwölf Vögel.".encode("cp1252"))
    (tmp_path / "cut.txt").write_bytes("Zwölf Vögel. Ein é".encode()[:-1])
    with pytest.warns(DataWarning) as said:
        bags = TextToBags().fit_transform(tmp_path)
    assert bags.instance_info["text"].tolist() == ["Zwölf Vögel.", "Ein", "Zwölf Vögel."]
    assert {str(w.message) for w in said} == {
        "old.txt: is not UTF-8; read as Windows-1252",
        "cut.txt: ends within a character, which was left out",
    }
    assert decode(b"\xe9t\xe9 \x81").encoding == "latin-1"
    page = '<meta charset="shift_jis"><p>鳥が鳴く。'.encode("shift_jis")
    assert "鳥が鳴く" in decode(page).text


@pytest.mark.parametrize(
    "bad", [b"\x00\x01\x02", b"\x01\x02\x03" * 9, b"\xff\xfe\x00\xd8", bytes(range(256)) * 9]
)
def test_what_is_no_text_is_refused(bad, tmp_path):
    (tmp_path / "a.txt").write_bytes(bad)
    with pytest.raises(DataError, match=r"a\.txt: is not"):
        TextToBags().fit_transform([tmp_path / "a.txt"])
    with pytest.raises(DataError, match="not known"):
        decode(b"a", "no-such-encoding")
    with pytest.raises(DataError, match="not known"):
        decode(b"a", "hex")


def test_html():
    page = """<!DOCTYPE html><html><head><title>On birds</title><style>p {color: red}</style>
    <script>if (a < b) document.write("<p>no</p>")</script></head><body><!-- no <p> -->
    <p class="a>b">A&nbsp;wren &lt;sings&gt;.<br>Loud.</p><ul><li>one<li>two</ul><pre>a
  b</pre><svg><text>no</text></svg> 1 < 2 <b>bold</b>ly</body></html>"""
    text = strip_html(page)
    assert text.split("\n\n") == [
        "On birds", "A\xa0wren <sings>.\nLoud.", "one", "two", "a\n  b", "1 < 2 boldly",
    ]  # fmt: skip
    bags = TextToBags(html=True).fit_transform(["<p>One.</p><p>Two."])
    assert bags.instance_info["text"].tolist() == ["One.", "Two."]


@pytest.mark.parametrize(
    "bad",
    [
        "<",
        "<a ",
        '<a "',
        "<a '>",
        "<!--",
        "<div>",
        "</div>",
        "<script>",
        "&",
        "&#",
        "<![CDATA[",
        "<a \"'",
        "<!",
        "<p\n",
    ],
)
def test_broken_pages_take_no_long(bad):
    start = time.process_time()
    strip_html(bad * 100_000)
    strip_html(bad * 50_000 + ">")
    assert time.process_time() - start < 5


def test_files_strings_and_names(tmp_path):
    (tmp_path / "a.txt").write_text("One. Two.")
    (tmp_path / "b.html").write_text("<p>Three.</p>")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.md").write_text("# Four\nFive.")
    bags = TextToBags().fit_transform(tmp_path)
    assert list(bags.bag_ids) == ["a.txt", "b.html", "sub/c.md"]
    assert bags.sizes.tolist() == [2, 1, 2]
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        TextToBags().transform(["nowhere.txt"])
    said = TextToBags().fit_transform(["I wrote this in readme.txt"])
    assert said.sizes.tolist() == [1]
    with pytest.raises(DataError, match="got int"):
        TextToBags().transform([3])


def test_a_text_without_words_is_kept_and_said():
    with pytest.warns(DataWarning, match="holds no words"):
        bags = TextToBags().fit_transform(["", "One.", " - "])
    assert bags.sizes.tolist() == [1, 1, 1] and bags.X[[0]].nnz == 0


def test_tables(tmp_path):
    (tmp_path / "a.csv").write_text('id;body;n\n7;"One; two. Three.";1\n8;;2\n', encoding="utf-8-sig")
    with pytest.warns(DataWarning, match="a.csv#8: holds no words"):
        bags = TextToBags().fit_transform([tmp_path / "a.csv"])
    assert [name.rsplit("/")[-1] for name in bags.bag_ids] == ["a.csv#7", "a.csv#8"]
    assert bags.sizes.tolist() == [2, 1]
    rows = [{"words": f"Text {k}."} for k in range(3)]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    bags = TextToBags(column="words").fit_transform([tmp_path / "b.jsonl"])
    assert [name.rsplit("#")[-1] for name in bags.bag_ids] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"", "holds no rows"),
        ("a.csv", b"x,y\n1,2\n", "which column holds the text"),
        ("a.csv", b"text,text\na,b\n", "two columns"),
        ("a.csv", b"text\na,b\n", "line 2: expected 1 cells, found 2"),
        ("a.csv", b"id,text\n1,a\n1,b\n", "comes twice"),
        ("a.jsonl", b"[" * 100_000, "line 1: is not JSON"),
        ("a.jsonl", b"3\n", "expected an object"),
        ("a.jsonl", b'{"text": 3}\n', "holds int"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', "line 2: is not JSON"),
    ],
)
def test_tables_that_are_none(name, content, reason):
    with pytest.raises(DataError, match=reason):
        rows_of_table(name, content)


def test_mutated_files(tmp_path):
    rng = random.Random(0)
    seeds = {
        "a.txt": TEXT.encode("utf-16"), "b.html": b"<p>One <b>two</b>.<!-- x --><script>a</script>",
        "c.csv": b'id,text\n1,"One. Two."\n2,Three\n',
        "d.jsonl": b'{"id": 1, "text": "\\ud83d a."}\n', "e.md": b"# A\nb\n",
    }  # fmt: skip
    maker, refused = TextToBags(n_features=16), 0
    for k in range(400):
        name, content = rng.choice(list(seeds.items()))
        data = bytearray(content)
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(data) or 1)
            data[at : at + rng.randint(0, 3)] = bytes(rng.choices(range(256), k=rng.randint(0, 4)))
        path = tmp_path / f"{k}{Path(name).suffix}"
        path.write_bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)
        try:
            for _, part in maker._parts(str(path)):
                assert part.X.shape[0] == len(part.places["text"]) and np.isfinite(part.X.data).all()
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 20


def test_gzip_bombs_are_refused(tmp_path, monkeypatch):
    import gzip

    from bagwise.media.text import transformer

    monkeypatch.setattr(transformer, "_MAX_BYTES", 1 << 20)
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"a " * (1 << 20)))
    with pytest.raises(DataError, match="more than"):
        TextToBags()._parts(str(tmp_path / "a.txt"))


def test_embeddings_by_function_and_by_name(tmp_path, monkeypatch):
    def lengths(texts):
        return [[len(text), text.count("e")] for text in texts]

    bags = TextToBags(embedding=lengths).fit_transform(["One. Three.", "Two."])
    assert bags.X.tolist() == [[4, 1], [6, 2], [4, 0]]
    with pytest.raises(DataError, match="row of numbers"):
        TextToBags(embedding=lambda texts: [1.0]).fit_transform(["One. Two."])
    with pytest.raises(
        (DataError, OptionalDependencyError), match=r"not on this machine|pip install|no model is known"
    ):
        TextToBags(embedding="nobody/no-such-model").fit_transform(["One."])
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    import sys
    import types

    class StaticModel:
        @classmethod
        def from_pretrained(cls, folder):
            assert folder == str(tmp_path)
            return cls()

        encode = staticmethod(lengths)

    module = types.ModuleType("model2vec")
    module.StaticModel = StaticModel
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "model2vec", module)
    assert TextToBags(embedding=str(tmp_path)).fit_transform(["One."]).X.tolist() == [[4, 1]]
