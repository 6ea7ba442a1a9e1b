"""The text of a page: tags, comments, scripts and styles gone, blocks apart by an empty line.

One pass from left to right, without recursion and in time proportional to the page whatever is in it. The
parser of older Pythons takes time that grows with the square of the length on pages broken on purpose.
"""

from __future__ import annotations

import html
import re

__all__ = ["strip_html"]

_BLOCK_NAMES = """
    address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol option p pre section select
    summary table tbody tfoot thead title tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_BREAKS = {"br": "\n", "td": " ", "th": " "}
_DROPPED = ("script", "style", "template", "svg", "noscript", "iframe", "object")
_CLOSING = {name: re.compile(rf"</{name}(?=[\s/>])[^>]*+(?:>|\Z)", re.I) for name in _DROPPED}
_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9:-]*+)")
_REST_OF_TAG = re.compile(r"""(?:[^>"']++|"[^"]*+"|'[^']*+')*+>""")
_LONGEST_TAG = 1 << 16
_BROKEN_TAGS = 100  # after so many that do not end where their quotes say, quotes are not looked at any more
_BLANKS = re.compile(r"[ \t\n\r\f\v]+")
_AROUND_BREAKS = re.compile(r" *\n[ \n]*")


def strip_html(text: str) -> str:
    r"""Text of a page of HTML.

    Examples
    --------
    >>> strip_html("<h1>Birds</h1><p>A wren &amp; a <b>robin</b>.<script>x = '<p>'</script><p>Two.")
    'Birds\n\nA wren & a robin.\n\nTwo.'
    """
    out: list[str] = []
    at, broken, pre = 0, 0, 0
    last = text.rfind(">")
    while at < len(text):
        start = text.find("<", at)
        if start < 0 or start > last:
            break
        _add(out, text[at:start], pre)
        name = _NAME.match(text, start)
        if name is None:
            at = _after_other(text, start)
            if at == start + 1:  # a sign, not a tag
                out.append("<")
            continue
        word = name[1].lower()
        rest = None
        if broken < _BROKEN_TAGS:
            rest = _REST_OF_TAG.match(text, name.end(), name.end() + _LONGEST_TAG)
            broken += rest is None
        at = rest.end() if rest else text.find(">", name.end()) + 1 or len(text)
        closes = text[start + 1] == "/"
        if word in _CLOSING and not closes and text[at - 2 : at] != "/>":
            end = _CLOSING[word].search(text, at)
            at = end.end() if end else len(text)
        elif word in _BLOCKS:
            out.append("\n\n")
            if word == "pre":
                pre = max(pre + (-1 if closes else 1), 0)
        elif not closes:
            out.append(_BREAKS.get(word, ""))
    _add(out, text[at:], pre)
    return _AROUND_BREAKS.sub(_breaks, "".join(out)).replace("\t", " ").strip().replace("\x00", "\n")


def _add(out: list[str], data: str, pre: int) -> None:
    if not data:
        return
    if "&" in data:
        data = html.unescape(data)
    # a line end inside <pre> is kept under another name, so that it does not count as layout
    out.append(data.replace("\x00", " ").replace("\n", "\x00") if pre else _BLANKS.sub(" ", data))


def _breaks(match: re.Match[str]) -> str:
    return "\n\n" if match[0].count("\n") > 1 else "\n"


def _after_other(text: str, start: int) -> int:
    """Where to go on after a comment, a declaration or a bare ``<``."""
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"), ("</", ">")):
        if text.startswith(opening, start):
            end = text.find(closing, start + len(opening))
            return len(text) if end < 0 else end + len(closing)
    return start + 1
