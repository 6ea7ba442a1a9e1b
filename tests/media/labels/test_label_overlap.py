"""Which parts a span labels: the rule against counting small cells one by one."""

import numpy as np
import pytest

from bagwise import Bags
from bagwise.media.labels import Span, instance_labels
from bagwise.media.labels.picture_tools import coco_mask

LABELS = ["a", "b", "c"]


def bags_of(places, file="f"):
    n = len(next(iter(places.values())))
    return Bags(np.zeros((n, 1)), [0, n], bag_ids=[file], instance_info=places)


def by_counting(parts, spans):
    """``parts`` and ``spans`` as boolean arrays over the same cells."""
    found = np.full(len(parts), -1)
    for k, part in enumerate(parts):
        share = dict.fromkeys(LABELS, 0)
        for label, span in spans:
            both = (part & span).sum()
            if both and (2 * both >= part.sum() or 2 * both >= span.sum()):
                share[label] += both
        best = max(LABELS, key=lambda label: (share[label], -LABELS.index(label)))
        if share[best]:
            found[k] = LABELS.index(best)
    return found


def segment(rng, n):
    a, b = sorted(rng.choice(n + 1, 2, replace=False).tolist())
    return a, b


@pytest.mark.parametrize("seed", range(20))
def test_in_time_and_text(seed):
    rng, n = np.random.default_rng(seed), 24
    cells = np.arange(n)
    parts = [segment(rng, n) for _ in range(6)]
    given = [(str(rng.choice(LABELS)), segment(rng, n)) for _ in range(5)]
    expected = by_counting(
        [(cells >= a) & (cells < b) for a, b in parts],
        [(label, (cells >= a) & (cells < b)) for label, (a, b) in given],
    )
    start, end = np.array(parts).T
    time = [Span("f", label, start=a / 4, end=b / 4) for label, (a, b) in given]
    found = instance_labels(time, bags_of({"start": start / 4, "end": end / 4}), LABELS)
    assert found.tolist() == expected.tolist()
    text = [Span("f", label, start_char=a, end_char=b) for label, (a, b) in given]
    found = instance_labels(text, bags_of({"start_char": start, "end_char": end}), LABELS)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("medium", ["audio", "image", "outline", "mask"])
def test_in_two_dimensions(seed, medium):
    rng, n = np.random.default_rng(seed), 12
    y, x = np.mgrid[:n, :n]

    def cells(box):
        (x0, x1), (y0, y1) = box
        return (x >= x0) & (x < x1) & (y >= y0) & (y < y1)

    parts = [(segment(rng, n), segment(rng, n)) for _ in range(6)]
    given = [(str(rng.choice(LABELS)), (segment(rng, n), segment(rng, n))) for _ in range(4)]
    shapes = [(label, cells(box)) for label, box in given]
    x0, x1, y0, y1 = np.array([[*a, *b] for a, b in parts], dtype=float).T
    if medium == "audio":
        spans = [
            Span("f", label, start=a[0], end=a[1], low=b[0] * 100, high=b[1] * 100) for label, (a, b) in given
        ]
        places = {"start": x0, "end": x1, "low": y0 * 100, "high": y1 * 100}
    else:
        spans, places = [], {"x": x0, "y": y0, "width": x1 - x0, "height": y1 - y0}
        if medium == "mask":
            shapes = [(label, rng.random((n, n)) < 0.4) for label, _ in given]
        for (label, box), (_, pixels) in zip(given, shapes):
            (a, b), (c, d) = box
            place = {"x": float(a), "y": float(c), "width": float(b - a), "height": float(d - c)}
            if medium == "outline":
                ring = np.array([[a, c], [b, c], [b, d], [a, d]], dtype=float)
                place["outline"] = [[ring]]
            if medium == "mask":
                flat = pixels.ravel(order="F")
                edges = np.flatnonzero(np.diff(np.concatenate([[False], flat])) != 0)
                counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
                mask = coco_mask(counts, n, n)
                place = dict(zip(("x", "y", "width", "height"), mask.box())) | {"outline": mask}
            spans.append(Span("f", label, **place))
    if medium == "outline":  # superpixels that happen to be boxes
        corners = zip(x0, y0, x1, y1)
        places["polygon"] = np.array(
            [f"{a},{b} {c},{b} {c},{d} {a},{d}" for a, b, c, d in corners], dtype=object
        )
    found = instance_labels(spans, bags_of(places), LABELS)
    assert found.tolist() == by_counting([cells(part) for part in parts], shapes).tolist()


def test_points_bands_and_other_files():
    places = {
        "start": np.array([0.0, 3.0, 6.0]),
        "end": np.array([3.0, 6.0, 9.0]),
        "low": np.array([0.0, 1000.0, np.nan]),
        "high": np.array([12000.0, 2000.0, np.nan]),
    }
    bags = bags_of(places)
    # a moment lies in the part that begins there
    assert instance_labels([Span("f", "a", start=3.0, end=3.0)], bags, LABELS).tolist() == [-1, 0, -1]
    # a short call inside a window of all frequencies; a call in another band; a part without a band
    assert instance_labels([Span("f", "b", start=1, end=1.2, low=2e3, high=4e3)], bags, LABELS)[0] == 1
    assert instance_labels([Span("f", "b", start=3, end=6, low=5e3, high=9e3)], bags, LABELS)[1] == -1
    assert instance_labels([Span("f", "b", start=6, end=9, low=5e3, high=9e3)], bags, LABELS)[2] == 1
    # open above, no band at all, label or file unknown
    assert instance_labels([Span("f", "c", start=3, end=6, low=900)], bags, LABELS)[1] == 2
    assert instance_labels([Span("f", "c", start=3, end=6)], bags, LABELS).tolist() == [-1, 2, -1]
    others = [Span("g", "c", start=3, end=6), Span("f", "z", start=3, end=6), Span("f", "c")]
    assert instance_labels(others, bags, LABELS).tolist() == [-1, -1, -1]
    point = Span("f", "a", x=5, y=5, width=0, height=0)
    boxes = bags_of(
        {
            name: np.array(v, dtype=float)
            for name, v in (("x", [0, 5]), ("y", [0, 5]), ("width", [5, 5]), ("height", [5, 5]))
        }
    )
    assert instance_labels([point], boxes, LABELS).tolist() == [-1, 0]
