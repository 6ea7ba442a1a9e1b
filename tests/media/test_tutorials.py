"""The pages about media run as written: every command and every block of Python, in an empty folder.

Commands are lines ``    $ bagwise ...`` (or ``$ python -c ...``), Python is in blocks that begin with three
backticks and ``python``. They run in the order of the page, in this process, which spares the imports.
"""

import ast
import re
import shlex
from pathlib import Path

import pytest

import bagwise
from bagwise.cli import app

DOCS = Path(bagwise.__file__).parent.parent / "docs"
PAGES = ["media.md", "audio.md", "pictures.md", "text.md", "slides.md", "labels_and_answers.md"]
NEEDS = {"audio.md": ["soundfile"], "pictures.md": ["PIL", "skimage"], "slides.md": ["h5py"]}
LATER = 1  # exit code of a command that could not read all files, which pages may show


def steps(text):
    """Commands and blocks of Python with the number of their line."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.strip() == "```python":
            block = []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                block.append(inner)
            yield number, "python", "\n".join(block)
        elif command := re.match(r"\s+\$ (.*)", line):
            words = command[1]
            while words.endswith("\\"):
                words = words[:-1] + next(lines)[1].strip()
            yield number, "command", words


def run_command(words, space):
    words = re.sub(r"\s{2,}#.*", "", words)  # what a page says beside it
    first, *rest = shlex.split(words)
    if first == "bagwise":
        expanded = [str(p) for word in rest for p in (sorted(Path().glob(word)) if "*" in word else [word])]
        code = app(expanded, standalone_mode=False)
        assert code in (0, None, LATER), f"exit code {code}"
    elif first == "python" and rest[0] == "-c":
        run_python(rest[1], {})
    elif first == "pip":
        return  # what is installed is installed
    else:
        raise AssertionError(f"a page should not need {first!r}")


def run_python(code, space):
    if code.lstrip().startswith(">>>"):
        import doctest

        test = doctest.DocTestParser().get_doctest(code, space, "page", None, 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, clear_globs=False)
        assert not runner.failures
        space.update(test.globs)
        return
    exec(compile(ast.parse(code), "page", "exec"), space)


def run_page(path):
    space = {"__name__": "page"}
    count = 0
    for number, kind, content in steps(path.read_text(encoding="utf-8")):
        try:
            run_command(content, space) if kind == "command" else run_python(content, space)
        except Exception as error:
            raise AssertionError(f"{path.name}, line {number}: {content}\n{error}") from error
        count += 1
    return count


@pytest.mark.parametrize("page", PAGES)
def test_page(page, tmp_path, monkeypatch):
    if not DOCS.exists():
        pytest.skip("the pages are not part of an installed package")
    for library in NEEDS.get(page, []):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAGWISE_CACHE", str(tmp_path / ".cache"))
    assert run_page(DOCS / page) > 0


def test_pages_are_read_as_meant():
    text = "Words\n\n    $ bagwise fit a \\\n        --out b\n    output\n\n```python\nx = 1\n```\n"
    text += "```py\nno\n```\n"
    assert list(steps(text)) == [(3, "command", "bagwise fit a --out b"), (7, "python", "x = 1")]
