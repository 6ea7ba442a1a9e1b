"""What holds for tests and examples alike: where torch is missing, and objects that stay to the end."""

import gc
from importlib.util import find_spec
from pathlib import Path

# Modules that need torch, by themselves or by what they import, are not looked through where it is missing.
ROOT = Path(__file__).parent
TEXTS = {path: path.read_text() for path in (ROOT / "bagwise").rglob("*.py")}
collect_ignore: list[str] = []
missing = [name for name in ("torch", "triton") if find_spec(name) is None]
while missing:
    found = [
        path
        for path, text in TEXTS.items()
        if any(f"\nimport {name}\n" in text or f"\nfrom {name} import" in text for name in missing)
    ]
    collect_ignore += map(str, found)
    missing = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in found]
    TEXTS = {path: text for path, text in TEXTS.items() if path not in found}

# Looking for tests makes two thirds of a million objects that stay. Searching them for garbage again and
# again takes a third of the time until the first test, and a tenth of that of small tests.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on only what tests make is searched."""
    gc.freeze()
    gc.enable()
