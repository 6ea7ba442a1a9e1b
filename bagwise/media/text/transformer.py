"""Documents to bags of sentences, paragraphs or windows of words, described by words or by a model of texts.

No model is ever downloaded here: a name is looked up among those that are on this machine already.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from bagwise.base.parameters import Anything, Choice, Flag, Number, Several, Whole
from bagwise.errors import DataError, optional
from bagwise.io._source import read_bytes
from bagwise.media.base import COMMON, ToBags
from bagwise.media.parts import Part
from bagwise.media.text.decode import clean, decode, paragraphs, sentences, strip_html
from bagwise.media.text.tables import SUFFIXES as TABLES
from bagwise.media.text.tables import rows_of_table
from bagwise.media.text.tokens import Vocabulary, hashed, learn_vocabulary, tf_idf, tokens, word_bounds

__all__ = ["TextToBags"]

_HTML = (".html", ".htm", ".xhtml")
_MAX_BYTES = 2**30  # a text of one file; memory is about ten times that
_LONGEST_PATH = 4096
_KNOWN: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # vocabularies of fitted transformers


class TextToBags(ToBags):
    r"""Documents to bags: sentences, paragraphs or windows of words, described by the words in them.

    Takes files (``.txt``, ``.md``, ``.html``), tables with a text per row (``.csv``, ``.tsv``, ``.jsonl``)
    and strings. Each instance knows its place: ``start_char`` and ``end_char`` count characters of the
    decoded text (of a page of HTML, of the text without its tags), and ``text`` is what stands there.

    Parameters
    ----------
    cut : "sentences", "paragraphs" or "windows", default="sentences"
        What an instance is.
    window : int, default=50
        Words of a window; used with ``cut="windows"`` alone, as is ``step``.
    step : int, optional
        Words from one window to the next, by default half a window.
    features : "hashing" or "tf-idf", default="hashing"
        "hashing" learns nothing: each word counts in the column that its hash chooses. "tf-idf" learns the
        words and their weights in ``fit``; a part (a sentence, say) counts as a document.
    n_features : int, default=16384
        Columns with "hashing".
    n_grams : pair of int, default=(1, 1)
        Shortest and longest run of words that counts.
    sublinear : bool, default=False
        Whether a count c becomes 1 + log c.
    lowercase : bool, default=True
        Whether capital letters count as small ones.
    alternate_sign : bool, default=True
        With "hashing": whether half of the words count as -1, so that words that meet in a column cancel
        rather than add up.
    min_df : int, default=1
        With "tf-idf": terms in fewer parts are left out.
    max_df : float, default=1.0
        With "tf-idf": terms in more than this share of the parts are left out.
    max_terms : int, optional
        With "tf-idf": how many of the most frequent terms are kept.
    embedding : callable or str, optional
        In place of words: a function from a list of strings to an array with a row for each, or the name or
        folder of a model of model2vec or sentence-transformers that is on this machine already; nothing is
        downloaded.
    column : str, optional
        Column of a table that holds the text; by default "text", "body", "content" or the like.
    id_column : str, optional
        Column that names the rows of a table; by default "id" if there is one, else their numbers from 1.
        Bags are called ``file#id``.
    encoding : str, optional
        Encoding of the files. By default marks decide, then UTF-8, then a guess, which is said.
    html : bool, optional
        Whether texts are HTML whose tags are to go; by default files called so.
    n_jobs : int, optional
        Processes that read files.
    cache : path, optional
        Folder for parts already made.

    Attributes
    ----------
    vocabulary_ : array of str
        With "tf-idf": the terms, in the order of the columns.
    idf_ : array of float
        Their weights.
    n_features_out_ : int
        Number of features of an instance.

    Notes
    -----
    A text without any word gives a bag of one instance whose features are all zero, and that is said.

    Examples
    --------
    >>> from bagwise.media import TextToBags
    >>> bags = TextToBags().fit_transform(["A wren sings. Dr. Li heard it.", "Two robins."])
    >>> bags.sizes, bags.instance_info["text"].tolist()
    (array([2, 1]), ['A wren sings.', 'Dr. Li heard it.', 'Two robins.'])
    >>> learned = TextToBags(features="tf-idf").fit(["A wren sings. Robins sing."])
    >>> learned.vocabulary_.tolist()
    ['robins', 'sing', 'sings', 'wren']
    """

    medium = "text"
    suffixes = (".txt", ".text", ".md", ".markdown", ".rst", *_HTML)
    also = TABLES
    _parameters = {
        "cut": Choice("sentences", "paragraphs", "windows"),
        "window": Whole(1),
        "step": (Choice(None), Whole(1)),
        "features": Choice("hashing", "tf-idf"),
        "n_features": Whole(1, 2**31 - 1),
        "n_grams": Several(Whole(1, 10)),
        "sublinear": Flag(),
        "lowercase": Flag(),
        "alternate_sign": Flag(),
        "min_df": Whole(1),
        "max_df": Number(above=0, high=1),
        "max_terms": (Choice(None), Whole(1)),
        "embedding": (Choice(None), Anything("a function of a list of strings, or the name of a model")),
        "column": (Choice(None), Anything("the name of a column")),
        "id_column": (Choice(None), Anything("the name of a column")),
        "encoding": (Choice(None), Anything("the name of an encoding")),
        "html": (Choice(None), Flag()),
        **COMMON,
    }

    def __init__(
        self,
        cut="sentences",
        *,
        window=50,
        step=None,
        features="hashing",
        n_features=2**14,
        n_grams=(1, 1),
        sublinear=False,
        lowercase=True,
        alternate_sign=True,
        min_df=1,
        max_df=1.0,
        max_terms=None,
        embedding=None,
        column=None,
        id_column=None,
        encoding=None,
        html=None,
        n_jobs=None,
        cache=None,
    ):
        self.cut = cut
        self.window = window
        self.step = step
        self.features = features
        self.n_features = n_features
        self.n_grams = n_grams
        self.sublinear = sublinear
        self.lowercase = lowercase
        self.alternate_sign = alternate_sign
        self.min_df = min_df
        self.max_df = max_df
        self.max_terms = max_terms
        self.embedding = embedding
        self.column = column
        self.id_column = id_column
        self.encoding = encoding
        self.html = html
        self.n_jobs = n_jobs
        self.cache = cache

    def _check_settings(self) -> None:
        if len(self.n_grams) != 2 or self.n_grams[0] > self.n_grams[1]:
            raise ValueError(f"n_grams of TextToBags must be (shortest, longest), got {self.n_grams!r}")
        if self.step is not None and self.cut == "windows" and self.step > self.window:
            raise ValueError(
                f"step of TextToBags must be at most window={self.window} or words are lost, got {self.step}"
            )

    def _is_path(self, source: Any) -> bool:
        """A string is a file if there is one, or if it looks like the name of one; else it is the text."""
        if not isinstance(source, str):
            return isinstance(source, PathLike)
        if len(source) > _LONGEST_PATH or "\n" in source or not source or "\0" in source:
            return False
        named = source.lower().removesuffix(".gz").endswith((*self.suffixes, *self.also))
        if named and " " not in source:
            return True
        return ("." in source or os.sep in source) and os.path.isfile(source)

    def _part(self, source: Any) -> Part:
        (part,) = (part for _, part in self._parts(source))
        return part

    def _parts(self, source: Any) -> list[tuple[str, Part]]:
        if not self._is_path(source):
            if not isinstance(source, str):
                raise DataError(f"expected a path or a text, got {type(source).__name__}")
            return [("", self._one(clean(source), self.html))]
        name = os.fspath(source)
        lower = name.lower().removesuffix(".gz")
        content = read_bytes(name, _MAX_BYTES)
        if lower.endswith(TABLES):
            rows, note = rows_of_table(
                name, content, column=self.column, id_column=self.id_column, encoding=self.encoding
            )
            notes = [note, *(None for _ in rows)]  # once for the whole table
            return [(key, self._one(text, self.html, one)) for (key, text), one in zip(rows, notes)]
        text, _, note = decode(content, self.encoding)
        html = lower.endswith(_HTML) if self.html is None else self.html
        return [("", self._one(text, html, note))]

    def _one(self, text: str, html: bool | None, note: str | None = None) -> Part:
        """The bag of one text."""
        if html:
            text = strip_html(text)
        spans = self._spans(text)
        notes = () if note is None else (note,)
        if not len(spans):
            spans, notes = np.array([[0, len(text)]]), (*notes, "holds no words: one instance of zeros")
        pieces = np.empty(len(spans), dtype=object)
        pieces[:] = [text[start:end] for start, end in spans.tolist()]
        places = {"start_char": spans[:, 0].copy(), "end_char": spans[:, 1].copy(), "text": pieces}
        return Part(self._rows(text, spans, pieces), places, notes)

    def _spans(self, text: str) -> np.ndarray:
        if self.cut == "sentences":
            return sentences(text)
        if self.cut == "paragraphs":
            return paragraphs(text)
        words = word_bounds(text)
        if not len(words):
            return words
        step = self.step or max(self.window // 2, 1)
        first = np.arange(0, max(len(words) - self.window + step, 1), step)
        last = np.minimum(first + self.window, len(words)) - 1
        return np.column_stack([words[first, 0], words[last, 1]])

    def _rows(self, text: str, spans: np.ndarray, pieces: np.ndarray) -> Any:
        if self.embedding is not None:
            return embedded(pieces.tolist(), self.embedding)
        if self._learns():
            return sparse.csr_array((len(spans), 0), dtype=np.float32)  # counted when the words are known
        return hashed(
            tokens(text, spans, lowercase=self.lowercase),
            len(spans),
            self.n_features,
            n_grams=tuple(self.n_grams),
            alternate_sign=self.alternate_sign,
            sublinear=self.sublinear,
        )

    def _learns(self) -> bool:
        return self.features == "tf-idf" and self.embedding is None

    def _tokens(self, part: Part) -> Any:
        """Words of a part, from the text of its places."""
        pieces = part.places["text"]
        ends = np.cumsum([len(piece) + 1 for piece in pieces])
        spans = np.column_stack([np.concatenate([[0], ends[:-1]]), ends - 1]).astype(np.int64)
        return tokens("\n".join(pieces), spans, lowercase=self.lowercase)

    def _learn(self, parts: Sequence[Part]) -> None:
        found = learn_vocabulary(
            ((self._tokens(part), len(part.places["text"])) for part in parts),
            n_grams=tuple(self.n_grams),
            min_df=self.min_df,
            max_df=self.max_df,
            max_terms=self.max_terms,
        )
        self.vocabulary_, self.idf_ = found.terms, found.idf

    def _finish(self, part: Part) -> Part:
        if not self._learns():
            return part
        known = _KNOWN.get(self)
        if known is None or known.terms is not self.vocabulary_:  # found by hash: made once, kept in no file
            known = _KNOWN[self] = Vocabulary.of(self.vocabulary_, self.idf_)
        n = len(part.places["text"])
        X = tf_idf(self._tokens(part), n, known, n_grams=tuple(self.n_grams), sublinear=self.sublinear)
        return part._replace(X=X)

    def _names(self) -> list[str] | None:
        if self.embedding is not None:
            return None
        if self._learns():
            return self.vocabulary_.tolist() if hasattr(self, "vocabulary_") else None
        return [f"hash {k}" for k in range(self.n_features)]


# ---------------------------------------------------------------------- models of texts


def embedded(texts: list[str], embedding: str | Callable[[list[str]], Any]) -> np.ndarray:
    """Vectors of some texts as float32, by a function or a model by its name or folder.

    Examples
    --------
    >>> embedded(["a", "bird"], lambda texts: [[len(text)] for text in texts])
    array([[1.],
           [4.]], dtype=float32)
    """
    if isinstance(embedding, (str, PathLike)):
        embedding = _by_name(os.fspath(embedding))
    X = np.asarray(embedding(texts))
    if X.ndim != 2 or len(X) != len(texts) or X.dtype.kind not in "fiu":
        raise DataError(
            f"embedding= should give a row of numbers for each of {len(texts)} texts, gave {X.dtype} of "
            f"shape {X.shape}"
        )
    return np.ascontiguousarray(X, dtype=np.float32)


@lru_cache(maxsize=4)
def _by_name(name: str) -> Callable[[list[str]], Any]:
    folder = Path(name) if os.path.isdir(name) else _cached_folder(name)
    try:
        kind = json.loads((folder / "config.json").read_text("utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError):
        kind = None
    if kind == "model2vec":
        library = optional("model2vec", f"the model {name!r} needs model2vec: pip install model2vec")
        return library.StaticModel.from_pretrained(str(folder)).encode
    library = optional(
        "sentence_transformers",
        f"the model {name!r} needs sentence-transformers: pip install sentence-transformers",
    )
    model = library.SentenceTransformer(str(folder), local_files_only=True)
    return lambda texts: model.encode(texts, show_progress_bar=False, convert_to_numpy=True)


def _cached_folder(name: str) -> Path:
    """Folder of a model that the Hugging Face tools have fetched before."""
    hub = optional(
        "huggingface_hub",
        f"{name!r} is no folder, and without huggingface_hub no model is known by name; "
        "pip install model2vec (or sentence-transformers), or give the model's folder",
    )
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # not there, or no name of a model
        raise DataError(
            f"the model {name!r} is not on this machine, and nothing is downloaded by itself; "
            f"fetch it first (hf download {name}), or give its folder"
        ) from None
