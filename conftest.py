"""Modules that need torch are not looked through for examples where it is not installed."""

from importlib.util import find_spec
from pathlib import Path

collect_ignore = []
for package in ("torch", "triton"):
    if find_spec(package) is None:
        for path in (Path(__file__).parent / "bagwise").rglob("*.py"):
            if f"\nimport {package}\n" in (text := path.read_text()) or f"\nfrom {package} import" in text:
                collect_ignore.append(str(path))
