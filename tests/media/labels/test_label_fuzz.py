"""Whatever is in a file of labels: labels, or one clear line; soon, and within bounded memory."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bagwise
from bagwise.errors import DataError
from bagwise.media.labels import read_labels
from bagwise.media.labels.picture_tools import brush_mask, coco_mask

COUNT = int(os.environ.get("BAGWISE_FUZZ", "2000"))
SEED = int(os.environ.get("BAGWISE_FUZZ_SEED", "0"))


def test_spoiled_files(tmp_path):
    worker = Path(__file__).with_name("label_fuzz_worker.py")
    command = [sys.executable, worker, str(SEED), str(COUNT), tmp_path]
    home = {**os.environ, "PYTHONPATH": str(Path(bagwise.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + COUNT // 20, env=home)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert not report["wrong"], "\n\n".join(report["wrong"][:5])
    assert report["refused"] > COUNT // 10 and report["read"] > COUNT // 10
    assert report["slowest"] < 5.0
    assert report["growth_mib"] < 100


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("deep.json", "[" * 200_000 + "]" * 200_000, "too many levels"),
        ("deep.csv", 'file,labels\na.wav,"' + "[" * 100_000 + '"\n', "a.wav|none of"),
        ("long.csv", "file,labels\na.wav," + "x" * 200_000 + "\n", None),
        ("big.json", '{"a.wav": ' + "9" * 10_000 + "}", "no JSON|no known kind"),
        ("x.json", '{"a.wav": NaN}', "no known kind"),
        ("e.json", "", "no JSON"),
        ("l.xml", "<annotation>" + "<a>" * 100_000 + "</a>" * 100_000 + "</annotation>", None),
    ],
)
def test_hostile_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    try:
        read_labels(path, ["a.wav"], "audio")
    except DataError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
    else:
        assert message is None or "a.wav" in message


def test_huge_masks_cost_nothing():
    side = 1 << 20
    mask = coco_mask([5, side * side - 5], side, side)
    assert mask.area == side * side - 5 and mask.ends.nbytes < 100
    with pytest.raises(DataError, match="cannot be"):
        coco_mask([1], 1 << 30, 1 << 30)
    with pytest.raises(DataError, match="does not fit"):
        brush_mask([255] * 8, 1000, 1000)
    with pytest.raises(DataError, match="ends too early"):
        brush_mask([0, 0, 0, 16, 57, 27], 2, 2)
    with pytest.raises(DataError, match="list of bytes"):
        brush_mask([300], 2, 2)


def test_a_workbook_that_unpacks_to_gigabytes(tmp_path):
    path = tmp_path / "bomb.xlsx"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book,
        book.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as member,
    ):
        for _ in range(300):
            member.write(b" " * (1 << 20))
    with pytest.raises(DataError, match="too large when unpacked"):
        read_labels(path, ["a.wav"], "audio")
