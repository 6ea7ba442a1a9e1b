"""Documents mixed from topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bagwise.datasets.media._files import File, Truth, filled

TOPICS = {
    "cooking": "oven butter flour garlic simmer recipe onion sauce dough pepper boil soup taste pan salt",
    "football": "goal striker referee penalty league coach match defender kick stadium corner team cup foul",
    "gardening": "soil seeds pruning roses compost lawn roots tulips watering shrub weeds hedge bulbs",
    "money": "bank interest loan shares inflation market budget savings tax credit profit price debt bond",
    "music": "violin chord melody orchestra rhythm choir piano concert singer drums album tempo song guitar",
    "space": "planet orbit telescope rocket galaxy moon comet astronaut gravity star satellite launch mars",
}
_PLAIN = "today people often little again place always many later still much early together began found soon"


def make_documents(
    folder: File,
    n_files: int = 120,
    *,
    labels: File | None = None,
    sentences: tuple[int, int] = (4, 9),
    random_state: int = 0,
) -> Truth:
    """Documents (text) whose sentences are each about one of six topics, or about none.

    Parameters
    ----------
    folder : path
        Where to write ``document_000.txt``, ...
    n_files : int, default=120
        Number of documents.
    labels : path, optional
        CSV file of the topics of each document.
    sentences : pair of int, default=(4, 9)
        Fewest and most sentences of a document.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import tempfile
    >>> truth = make_documents(tempfile.mkdtemp(), 2)
    >>> list(truth.labels), set(truth.labels["document_000.txt"]) <= set(TOPICS)
    (['document_000.txt', 'document_001.txt'], True)
    """
    rng = np.random.default_rng(random_state)
    words = {topic: text.split() for topic, text in TOPICS.items()}
    plain = _PLAIN.split()

    def make(path: Path) -> list[dict[str, Any]]:
        chosen = rng.choice(list(words), rng.integers(1, 4), replace=False)
        text, spans = "", []
        for k in range(rng.integers(sentences[0], sentences[1] + 1)):
            topic = "" if rng.random() < 0.25 else str(rng.choice(chosen))
            own = rng.choice(words[topic], rng.integers(2, 5), replace=False).tolist() if topic else []
            said = own + rng.choice(plain, rng.integers(4, 8), replace=False).tolist()
            rng.shuffle(said)
            sentence = " ".join(["The", *said]) + "."
            text += "" if not text else "\n\n" if k % 3 == 0 else " "
            if topic:
                place = {"start_char": len(text), "end_char": len(text) + len(sentence), "text": sentence}
                spans.append({"label": topic, **place})
            text += sentence
        path.write_bytes(f"{text}\n".encode())
        return spans

    return filled(folder, "document", ".txt", n_files, make, labels)
