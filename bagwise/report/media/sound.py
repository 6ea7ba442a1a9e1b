"""A recording: its spectrogram, calls framed where they are, windows as bars in lanes below it.

A long recording is cut into rows of half a minute; of more than six, those with most marks are drawn, and
the picture says so. Samples are read for these rows alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.media.labels import Found
from bagwise.media.labels.answers import sound_length, sound_rate, spans_of
from bagwise.media.labels.span import Span
from bagwise.report.media.frame import FAINT, INK, NO_ORIGINAL, caption, colours_of, head, new_figure, rgb

_ROW, _MOST_ROWS = 30.0, 6  # seconds
_FRAMES = 1100  # columns of a spectrogram
_WIDTH, _HIGH, _LANE = 11.0, 2.1, 0.2  # inches
_TOP, _BOTTOM, _SIDE, _GAP = 0.5, 0.62, 0.75, 0.42
_CHAR, _TEXT = 0.0062, 0.075  # width of a letter and height of a name, as shares of the row


def draw(found: Found, names: list[str]) -> tuple[Any, str | None]:
    """Draw one recording."""
    ends = found.places["end"]
    length = sound_length(found.path) or float(np.max(ends, initial=0.0)) or 1.0
    # Hz up to which to draw: what the parts reach, but not beyond what the recording holds
    high, rate = found.places["high"], sound_rate(found.path)
    top = float(np.max(high[np.isfinite(high)], initial=0.0)) * 1.05 or 12_000.0
    top = top if rate is None else min(top, rate / 2)
    # calls have bands of their own; windows all have the same
    calls = len(set(zip(found.places["low"].tolist(), found.places["high"].tolist()))) > 1
    spans = spans_of(found, names, "audio", merge=not calls)
    rows, left_out = _rows(spans, length)
    lanes = [] if calls else list(dict.fromkeys(sorted((str(s.label) for s in spans), key=names.index)))
    room = _HIGH + (_LANE * len(lanes) + 0.08 if lanes else 0.0)
    figure = new_figure(_WIDTH, _TOP + len(rows) * (room + _GAP) + _BOTTOM - _GAP + 0.1)
    colours = colours_of(found.labels, names)
    missing = False
    for k, (begin, end) in enumerate(rows):
        picture = _spectrogram(found.path, begin, end, top)
        missing |= picture is None
        above = _TOP + k * (room + _GAP)
        axes = _axes(figure, above, _HIGH)
        _row(axes, picture, begin, end, top, calls, k == len(rows) - 1 and not lanes)
        inside = [s for s in spans if s.time[1] > begin and s.time[0] < end]
        if calls:
            _frames(axes, inside, colours)
        else:
            for span in inside:
                axes.axvspan(*span.time, color=colours[str(span.label)], alpha=0.13, linewidth=0)
        if lanes:
            below = _axes(figure, above + _HIGH + 0.08, _LANE * len(lanes))
            _bars(below, inside, lanes, colours, begin, end, k == len(rows) - 1)
    notes = [NO_ORIGINAL] if missing else []
    if left_out:
        notes.append(f"{len(rows)} of {len(rows) + left_out} half minutes are shown, those with most marks")
    if not len(found.labels):
        notes.append("no call was found in it")
    note = "; ".join(notes) or None
    head(figure, found, note)
    return figure, note


def _rows(spans: list[Span], length: float) -> tuple[list[tuple[float, float]], int]:
    """Stretches of time to draw one below the other, and how many are left out."""
    if length <= 1.5 * _ROW:
        return [(0.0, length)], 0
    n = int(np.ceil(length / _ROW))
    count = np.zeros(n)
    for span in spans:
        start, end = span.time
        first, last = int(start // _ROW), int(min(end, length - 1e-9) // _ROW)
        count[max(first, 0) : last + 1] += 1
    best = np.sort(np.argsort(-count, kind="stable")[:_MOST_ROWS])
    return [(k * _ROW, min((k + 1) * _ROW, length)) for k in best.tolist()], n - len(best)


def _axes(figure: Any, above: float, height: float) -> Any:
    width, tall = figure.get_size_inches()
    place = (_SIDE / width, 1 - (above + height) / tall, 1 - (_SIDE + 0.18) / width, height / tall)
    return figure.add_axes(place)


def _spectrogram(path: str | None, begin: float, end: float, top: float) -> np.ndarray | None:
    """Decibels over the noise, frequencies by time; None if the recording cannot be read."""
    if path is None:
        return None
    try:
        import soundfile

        with soundfile.SoundFile(path) as file:
            rate = file.samplerate
            file.seek(int(begin * rate))
            samples = file.read(int(min(end - begin, 2 * _ROW) * rate), dtype="float32", always_2d=True)
    except Exception:  # a damaged file or a missing library: the places can still be drawn
        return None
    x = np.nan_to_num(samples.mean(axis=1)) if samples.shape[1] else np.zeros(0, dtype=np.float32)
    size = int(2 ** np.clip(np.round(np.log2(rate * 0.021)), 6, 12))
    if len(x) < size:
        return None
    hop = max(len(x) // _FRAMES, 1)
    frames = np.lib.stride_tricks.sliding_window_view(x, size)[::hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(size + 1)[:-1].astype(np.float32), axis=1)) ** 2
    keep = int(np.ceil(top / (rate / size))) + 1
    level = 10 * np.log10(power[:, :keep] + 1e-12).T
    return level - np.median(level, axis=1, keepdims=True)


def _row(axes: Any, picture: Any, begin: float, end: float, top: float, calls: bool, last: bool) -> None:
    if picture is None:
        axes.set_facecolor("#f6f8fa")
    else:
        high = max(float(np.percentile(picture, 99.7)), 12.0)
        axes.imshow(
            picture,
            origin="lower",
            aspect="auto",
            extent=(begin, end, 0, top / 1000),
            cmap="Greys",
            vmin=4.0,
            vmax=high,
            interpolation="bilinear",
        )
    axes.set_xlim(begin, end)
    axes.set_ylim(0, top / 1000)
    axes.set_ylabel("kHz", size=8, color=FAINT)
    _plain(axes)
    if last:
        axes.set_xlabel("seconds", size=8, color=FAINT)
    elif not calls:
        axes.set_xticklabels([])


def _plain(axes: Any) -> None:
    axes.tick_params(labelsize=7.5, colors=FAINT, length=2.5)
    for side in axes.spines.values():
        side.set_color("#d0d7de")


def _frames(axes: Any, spans: list[Span], colours: Any) -> None:
    """Calls in frames of their own; names beside them, once for the notes of one song."""
    from matplotlib.patches import Rectangle

    (left, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    taken = []  # boxes of calls and names, in shares of the row
    for span in spans:
        (start, end), colour = span.time, colours[span.label]
        low, high = (span.low or 0.0) / 1000, (span.high or top * 1000) / 1000
        box: dict[str, Any] = {"linewidth": 1.4, "edgecolor": colour, "facecolor": (*rgb(colour), 0.1)}
        axes.add_patch(Rectangle((start, low), end - start, high - low, **box))
        taken.append(((start - left) / (right - left), low / top, (end - left) / (right - left), high / top))
    for song in _songs(spans, 0.05 * (right - left)):
        score = max((s.score for s in song if s.score is not None), default=np.nan)
        times = f" ×{len(song)}" if len(song) > 1 else ""
        text = caption(f"{song[0].label}{times}", score)
        x = (max(song[0].time[0], left) - left) / (right - left)
        low = min(s.low or 0.0 for s in song) / 1000 / top
        high = max(s.high or top * 1000 for s in song) / 1000 / top
        x, y = _free_place(x, low, high, _CHAR * len(text), taken)
        taken.append((x, y, x + _CHAR * len(text), y + _TEXT))
        axes.text(
            x,
            y + _TEXT / 2,
            text,
            size=7.5,
            color=INK,
            va="center",
            transform=axes.transAxes,
            bbox={
                "facecolor": "white",
                "edgecolor": colours[song[0].label],
                "lw": 0.5,
                "alpha": 0.85,
                "pad": 0.9,
            },
        )


def _songs(spans: list[Span], gap: float) -> list[list[Span]]:
    """Calls of one label that follow each other closely and share frequencies."""
    songs: list[list[Span]] = []
    for span in spans:
        for song in reversed(songs):
            last = song[-1]
            if last.label == span.label and span.time[0] - last.time[1] < gap and _share_band(last, span):
                song.append(span)
                break
        else:
            songs.append([span])
    return songs


def _share_band(a: Span, b: Span) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.low < b.high and b.low < a.high


def _free_place(x: float, low: float, high: float, width: float, taken: list) -> tuple[float, float]:
    """Where a name covers least: above its call, below it, or higher up."""
    x = min(x, max(1.0 - width, 0.0))
    places = [high + 0.015, low - 0.015 - _TEXT, *(high + 0.015 + k * _TEXT for k in range(1, 8))]
    places = [y for y in places if 0 <= y <= 1 - _TEXT] or [min(max(high, 0.0), 1 - _TEXT)]

    def covered(y: float) -> float:
        across = (max(min(x + width, c) - max(x, a), 0.0) for a, _, c, _ in taken)
        down = (max(min(y + _TEXT, d) - max(y, b), 0.0) for _, b, _, d in taken)
        return sum(p * q for p, q in zip(across, down))

    return x, min(places, key=covered)


def _bars(
    axes: Any, spans: list[Span], lanes: list[str], colours: Any, begin: float, end: float, last: bool
) -> None:
    """A lane for each label, bars where it was found."""
    axes.set_xlim(begin, end)
    axes.set_ylim(len(lanes), 0)
    axes.set_yticks([])
    for k in range(len(lanes)):
        axes.axhline(k + 0.5, color="#eaeef2", linewidth=0.8, zorder=0)
    for span in spans:
        k, score = lanes.index(str(span.label)), np.nan if span.score is None else span.score
        left, right = max(span.time[0], begin), min(span.time[1], end)
        axes.barh(k + 0.5, right - left, left=left, height=0.82, color=colours[span.label])
        axes.text(
            left + 0.004 * (end - begin),
            k + 0.52,
            caption(str(span.label), score),
            size=7.5,
            color=INK,
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5},
        )
    _plain(axes)
    for side in axes.spines.values():
        side.set_visible(False)
    if last:
        axes.set_xlabel("seconds", size=8, color=FAINT)
