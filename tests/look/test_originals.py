"""Raw files behind the page: served by the number of a bag and no other way; answers for other tools."""

import io
import json
import zipfile

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

import bagwise
from bagwise import Bags, Dataset
from bagwise.datasets import make_collages, make_documents, make_recordings
from bagwise.errors import BagwiseError
from bagwise.look import Corrections, Session, make_app, open_session
from bagwise.look.exporting import export, export_kinds
from bagwise.look.originals import png, shaded
from bagwise.look.page import bundle, page_data, write_page
from bagwise.media import gather
from bagwise.models import MIMLDummy

HEADERS = {"x-bagwise-token": "t"}


def client(session):
    return TestClient(make_app(session, "t"), base_url="http://127.0.0.1:1", headers=HEADERS)


def with_model(data, tmp_path, **more):
    model = MIMLDummy().fit(data.bags, data.Y)
    model.label_names_ = data.label_names
    session = Session(data, model, Corrections(tmp_path / "c.jsonl", "x", author="ada"), **more)
    session.finish()
    return session


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp("sound")
    make_recordings(folder / "rec", 3, labels=folder / "rec.csv", seconds=2.0, calls=(1, 2))
    return folder, gather(folder / "rec", folder / "rec.csv", params={"window": 1.0}, cache=False)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("pictures")
    make_collages(folder / "pic", 3, labels=folder / "pic.csv")
    return folder, gather(folder / "pic", folder / "pic.csv", cache=False)


def test_recordings(recordings, tmp_path):
    folder, data = recordings
    session = with_model(data, tmp_path, root=folder / "rec")
    view = session.explain(1)["view"]
    assert view["kind"] == "audio" and view["seconds"] == pytest.approx(2.0) and view["top"] == 11025.0
    asked = client(session)
    picture = asked.get("/media/1/spectrogram")
    assert picture.headers["content-type"] == "image/png" and picture.content[1:4] == b"PNG"
    whole = (folder / "rec" / view["files"][0]).read_bytes()
    sound = asked.get("/media/1/sound")
    assert sound.content == whole and sound.headers["content-type"] == "audio/wav"
    piece = asked.get("/media/1/sound", headers={"range": "bytes=0-99"})
    assert piece.status_code == 206 and piece.content == whole[:100]
    assert asked.get("/media/1/picture").status_code == 404
    assert asked.get("/media/77/sound").status_code == 404


def test_spectrogram_shows_the_tone(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    from bagwise.look.originals import spectrogram

    time = np.arange(16000) / 16000
    soundfile.write(tmp_path / "tone.wav", np.where(time < 0.5, np.sin(2 * np.pi * 2000 * time), 0.0), 16000)
    P = spectrogram(tmp_path / "tone.wav")
    row = P[:, : P.shape[1] // 2].mean(axis=1).argmax()
    assert (row + 0.5) / len(P) * 8000 == pytest.approx(2000, abs=60)
    assert P[row, : P.shape[1] // 3].mean() > 1e3 * P[row, -P.shape[1] // 3 :].mean()
    grey = shaded(P)
    assert grey.dtype == np.uint8 and grey[::-1][row, 5] > 200


def test_png_is_read_back():
    Image = pytest.importorskip("PIL.Image")
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    palette = np.stack([np.arange(256)] * 3, axis=1).astype(np.uint8)
    with Image.open(io.BytesIO(png(values, palette))) as found:
        np.testing.assert_array_equal(np.asarray(found.convert("L")), values)


def test_pictures(pictures, tmp_path):
    folder, data = pictures
    session = with_model(data, tmp_path, root=folder / "pic")
    view = session.explain(0)["view"]
    assert view["kind"] == "image" and view["width"] == 192 and view["height"] == 192
    found = client(session).get("/media/0/picture")
    assert found.headers["content-type"] == "image/png"
    assert found.content == (folder / "pic" / view["files"][0]).read_bytes()


def test_originals_in_a_folder_beside_the_data(recordings, tmp_path):
    folder, data = recordings
    session = with_model(data, tmp_path, root=folder)
    assert session.originals.path(0) == (folder / "rec" / session.ids[0]).resolve()


def test_originals_elsewhere_are_not_served(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.wav").write_bytes(b"RIFF secret")
    (root / "link.wav").symlink_to(tmp_path / "secret.wav")
    (root / "notes.txt").write_text("secret")
    names = [
        "../secret.wav",
        str(tmp_path / "secret.wav"),
        "link.wav",
        "notes.txt",
        "\0.wav",
        "nothing.wav",
        ".",
    ]
    n = len(names)
    info = {
        "file": np.array(names, dtype=object),
        **{k: np.zeros(n) for k in ("start", "end", "low", "high")},
    }
    bags = Bags(np.zeros((n, 1)), np.arange(n + 1), instance_info=info)
    session = with_model(Dataset(bags, [["a"]] * n), tmp_path, root=root)
    asked = client(session)
    for number, name in enumerate(names):
        assert session.originals.path(number) is None, name
        for what in ("sound", "spectrogram", "picture"):
            found = asked.get(f"/media/{number}/{what}")
            assert found.status_code == 404 and "secret" not in found.text.replace("secret.wav", "")


def test_raw_folders_with_and_without_model(tmp_path):
    make_documents(tmp_path / "doc", 5, labels=tmp_path / "doc.csv")
    alone = open_session(tmp_path / "doc", corrections=tmp_path / "c.jsonl")
    assert alone.overview()["medium"] == "text" and len(alone.ids) == 5
    assert alone.explain(0)["view"]["places"]["text"][0]
    labelled = open_session(tmp_path / "doc", labels=tmp_path / "doc.csv", corrections=tmp_path / "c.jsonl")
    assert labelled.dataset.has_labels
    bagwise.actions.gather(tmp_path / "doc", tmp_path / "doc.parquet", tmp_path / "doc.csv", cache=False)
    bagwise.actions.fit(tmp_path / "doc.parquet", "MIMLDummy", out=tmp_path / "m.skops")
    session = open_session(tmp_path / "doc", tmp_path / "m.skops", corrections=tmp_path / "c.jsonl")
    session.finish()
    assert session.explain(0)["view"]["kind"] == "text"
    assert {kind for kind, _ in export_kinds(session)} == {"csv", "label-studio"}


def test_exports_hold_what_people_said(recordings, tmp_path):
    folder, data = recordings
    session = with_model(data, tmp_path, root=folder / "rec")
    session.correct(0, "yes", part=0, label="=owl")
    session.correct(0, "none", part=1)
    kinds = [kind for kind, _ in export_kinds(session)]
    assert kinds == ["csv", "raven", "audacity", "label-studio"]
    rows = export(session, "csv").content.decode().splitlines()
    assert rows[0].startswith("bag_id,part,label") and ",'=owl,1.0000,yes,ada," in rows[1]
    assert rows[2].split(",")[2] == "" and len(rows) == 1 + data.bags.n_instances
    with zipfile.ZipFile(io.BytesIO(export(session, "raven").content)) as archive:
        assert len(archive.namelist()) == 3 and b"=owl" in archive.read(archive.namelist()[0])
    assert "=owl" in json.dumps(json.loads(export(session, "label-studio").content))
    with pytest.raises(BagwiseError, match="coco is for image"):
        export(session, "coco")
    found = client(session).get("/export/raven")
    assert found.headers["content-disposition"] == 'attachment; filename="x.raven.zip"'
    assert client(session).get("/export/..%2fx").status_code in (400, 404)


def test_exports_hold_more_parts_than_the_page(tmp_path):
    bags = Bags(np.zeros((2105, 1)), [0, 2100, 2105])
    session = with_model(Dataset(bags, [["a"], ["a"]]), tmp_path)
    assert len(session.explain(0)["parts"]) == 2000 and session.explain(0)["size"] == 2100
    assert len(export(session, "csv").content.splitlines()) == 1 + 2105


def test_static_page(recordings, tmp_path):
    folder, data = recordings
    evil = "</script><script>alert(1)</script><!--"
    data = Dataset(data.bags, data.Y, (evil, *data.label_names[1:]), instance_Y=data.instance_Y)
    session = with_model(data, tmp_path, root=folder / "rec")
    done = write_page(session, tmp_path / "page.html", limit=2)
    page = (tmp_path / "page.html").read_text()
    assert done["n_bags"] == 2 and done["bytes"] == len(page.encode())
    assert page.count("<script") == 2 and page.count("</script") == 2 and "alert(1)</" not in page
    assert "Content-Security-Policy" in page and "unsafe" not in page.split("</head>")[0]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and 'src="' not in page
    block = page.split('id="inlined">')[1].split("</script>")[0]
    found = json.loads(block)
    assert found["overview"]["names"][0] == evil and len(found["bags"]) == 2
    media = next(iter(found["media"].values()))
    assert media["spectrogram"].startswith("data:image/png;base64,") and media["sound"].startswith(
        "data:audio/"
    )
    assert page_data(session, [0])["rows"][0]["number"] == 0


def test_static_page_is_of_bounded_size(tmp_path, monkeypatch):
    from bagwise.look import page

    monkeypatch.setattr(page, "_BAGS", 3000)
    bags = Bags(np.random.default_rng(0).normal(size=(40, 3)), np.arange(0, 41, 4))
    session = with_model(Dataset(bags, [["a"], ["b"]] * 5), tmp_path)
    assert 0 < write_page(session, tmp_path / "page.html")["n_bags"] < 10


def test_bundles_refuse_what_they_cannot_join():
    with pytest.raises(ValueError, match="each other"):
        bundle({"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'}, "a")
    with pytest.raises(ValueError, match="cannot be put"):
        bundle({"a.js": 'import * as b from "./b.js";'}, "a")
