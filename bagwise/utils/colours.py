"""Colours for labels, which readers who do not see red and green apart tell from each other.

After Okabe and Ito, and Tol: no two differ in hue alone. With more labels they repeat, so marks also bear
names.
"""

from __future__ import annotations

from collections.abc import Sequence

PALETTE = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e6b400", "#7a3e00", "#332288", "#5b6770")


def label_colours(names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Red, green and blue of every label, 0 to 255, by the order of the names.

    Examples
    --------
    >>> label_colours(["robin", "wren"])
    {'robin': (213, 94, 0), 'wren': (0, 114, 178)}
    """
    colours = (bytes.fromhex(PALETTE[k % len(PALETTE)][1:]) for k in range(len(names)))
    return {name: (red, green, blue) for name, (red, green, blue) in zip(names, colours)}


def distinct_colours(names: Sequence[str], shown: Sequence[str]) -> dict[str, str]:
    """Colour of each label shown, ``#rrggbb``: that of its place among all names, else one that is free.

    Examples
    --------
    >>> names = [f"label {k}" for k in range(10)]
    >>> distinct_colours(names, ["label 8", "label 0"])  # of the same colour, were they alone
    {'label 0': '#d55e00', 'label 8': '#0072b2'}
    """
    place = {name: k for k, name in enumerate(names)}
    free, found = list(PALETTE), {}
    for name in sorted(dict.fromkeys(shown), key=lambda name: place.get(name, len(names))):
        own = PALETTE[place.get(name, 0) % len(PALETTE)]
        colour = own if own in free or not free else free[0]
        if colour in free:
            free.remove(colour)
        found[name] = colour
    return found
