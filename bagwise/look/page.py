"""One page that needs no server: data, scripts and styles in one file, to mail or to put beside a paper.

The data lie in a block of JSON that no browser executes; the policy in the head names the one script and the
one style sheet by their fingerprints and allows nothing else, so that nothing in the data can ever run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from os import PathLike
from typing import Any

from bagwise.errors import BagwiseError
from bagwise.look.originals import small_picture
from bagwise.look.session import Session
from bagwise.utils.files import replacing

_BUDGET = 24 * 2**20  # bytes of sound and pictures on one page
_BAGS = 24 * 2**20  # characters of the answers about bags
_ONE_SOUND = 2 * 2**20
_SIDE = 900  # pixels of the longer side of a picture
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const) (\w+)", re.MULTILINE)


def write_page(session: Session, out: str | PathLike[str], *, limit: int = 200) -> dict[str, Any]:
    """Write a session as one self-contained page for reading.

    Parameters
    ----------
    session : Session
        What to show; all its bags are scored first.
    out : path
        The page.
    limit : int, default=200
        Bags that can be opened on the page: the most uncertain ones, without a model the first; fewer where
        they would make it larger than some 25 MB, sound and pictures not counted. Counts and quality are
        those of all bags.

    Returns
    -------
    dict
        Where it was written, its size in bytes, and the number of bags on it.
    """
    session.finish()
    by = "number" if session.answers is None else "uncertain"
    which = session.table.order(sort=by, down=by == "uncertain")[:limit]
    data = page_data(session, [int(number) for number in which])
    page = assemble(data).encode()
    with replacing(out) as temporary:
        temporary.write_bytes(page)
    return {"out": str(out), "bytes": len(page), "n_bags": len(data["rows"])}


def page_data(session: Session, numbers: list[int]) -> dict[str, Any]:
    """All answers that the page needs for some bags; those that come first, as far as there is room."""
    bags: dict[int, Any] = {}
    room = _BAGS
    for number in numbers:
        bags[number] = session.explain(number)
        room -= len(json.dumps(bags[number]))
        if room < 0:
            break
    numbers = sorted(bags)
    curves = {}
    if session.answers is not None:
        curves = {name: session.curve(name) for name in session.answers.names[:200]}
    media: dict[int, dict[str, str]] = {}
    left = _BUDGET
    for number in numbers:
        media[number], used = _media(session, number, left)
        left -= used
    overview = session.overview()
    return {
        "overview": {**overview, "exports": []},
        "rows": [session.table.row(number) for number in numbers],
        "bags": bags,
        "curves": curves,
        "media": media,
    }


def _media(session: Session, number: int, left: int) -> tuple[dict[str, str], int]:
    """Sound and picture of a bag as addresses that hold them, as far as there is room."""
    path = session.originals.path(number)
    found: dict[str, tuple[bytes, str]] = {}
    if path is not None:
        try:
            if session.originals.medium == "image":
                found["picture"] = (small_picture(path, _SIDE), "image/jpeg")
            else:
                found["spectrogram"] = (session.originals.spectrogram(number), "image/png")
                sound, kind = session.originals.sound(number)
                size = len(sound) if isinstance(sound, bytes) else sound.stat().st_size
                if size <= _ONE_SOUND:
                    found["sound"] = (sound if isinstance(sound, bytes) else sound.read_bytes(), kind)
        except (BagwiseError, OSError, ImportError):
            pass  # drawn without it, as the page does where originals are not at hand
    kept, used = {}, 0
    for name, (content, kind) in found.items():
        if used + len(content) <= left:
            used += len(content)
            kept[name] = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return kept, used


def assemble(data: dict[str, Any]) -> str:
    """The page as text."""
    files = {name: content.decode() for name, content in static_files().items()}
    script, style = bundle({n: t for n, t in files.items() if n.endswith(".js")}, "app"), files["look.css"]
    policy = (
        f"default-src 'none'; script-src '{_fingerprint(script)}'; style-src '{_fingerprint(style)}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    # "<" never appears in the block, so that no text in it can end it
    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    block = block.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    title = f"{data['overview']['data']} – bagwise look"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header id="top"></header>
<main id="main" tabindex="-1"><p class="waiting">Opening …</p></main>
<div id="notice" role="status" aria-live="polite"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="inlined">{block}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def bundle(modules: dict[str, str], entry: str) -> str:
    r"""Modules as one script: each a function of its own, in the order in which they need each other.

    Examples
    --------
    >>> text = 'import { f } from "./b.js";\nf();'
    >>> print(bundle({"a.js": text, "b.js": "export function f() {}"}, "a"))
    const module_b = (() => {
    function f() {}
    return { f };
    })();
    const module_a = (() => {
    const { f } = module_b;
    f();
    return {  };
    })();
    """
    done: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join([*above, name])}")
        if name in done:
            return
        text = modules[f"{name}.js"]
        for _, other in _IMPORT.findall(text):
            add(other, (*above, name))
        names = ", ".join(_EXPORT.findall(text))
        text = _IMPORT.sub(r"const { \1 } = module_\2;", text)
        if re.search(r"^(import|export (?!(async )?(function|const) ))", text, re.MULTILINE):
            raise ValueError(f"{name}.js imports or exports in a way that cannot be put into one script")
        text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
        done[name] = f"const module_{name} = (() => {{\n{text.strip()}\nreturn {{ {names} }};\n}})();"

    add(entry, ())
    script = "\n".join(done.values())
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("a script must not hold what ends it")
    return script


def _fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ---------------------------------------------------------------------- the files of the page


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def static_files() -> dict[str, bytes]:
    """The files of the page by name; nothing beside them can be asked for."""
    folder = files("bagwise.look") / "static"
    found = {}
    for item in folder.iterdir():
        if item.is_file() and "." + item.name.rpartition(".")[2] in TYPES:
            found[item.name] = item.read_bytes()
    return found
