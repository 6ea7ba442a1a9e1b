"""Model files that are written anew with a change inside."""

import json
import zipfile


def rewritten(path, target, change, compression=zipfile.ZIP_STORED):
    """Copy a model file, its parts changed by ``change(parts)`` in place."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target


def without_fingerprint(parts):
    """As a file of before fingerprints, or of someone who knows how to make them."""
    facts = json.loads(parts["bagwise.json"])
    facts.pop("sha256", None)
    parts["bagwise.json"] = json.dumps(facts).encode()
