"""What holds for tests and examples alike: where torch is missing, and objects that stay to the end."""

import gc
from importlib.util import find_spec
from pathlib import Path

# Modules that need torch are not looked through for examples where it is not installed.
collect_ignore = []
for package in ("torch", "triton"):
    if find_spec(package) is None:
        for path in (Path(__file__).parent / "bagwise").rglob("*.py"):
            if f"\nimport {package}\n" in (text := path.read_text()) or f"\nfrom {package} import" in text:
                collect_ignore.append(str(path))

# Looking for tests makes two thirds of a million objects that stay. Searching them for garbage again and
# again takes a third of the time until the first test, and a tenth of that of small tests.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on only what tests make is searched."""
    gc.freeze()
    gc.enable()
