"""CIFAR's readers, on small archives of the official layouts, whole and broken."""

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

import highway_networks as hn
from highway_suite import cifar
from highway_suite.cli import main
from highway_suite.datasets import obtain

IMAGES = 20         # of each member


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(params=["cifar10", "cifar100"])
def name(request):
    return request.param


@pytest.fixture
def members(name, rng):
    """{name: rows (20, labels + 3072)} of CIFAR-10 or CIFAR-100."""
    classes, read = hn.DATASETS[name].classes, hn.DATASETS[name].read
    return {part.name: np.hstack([
        rng.integers(classes, size=(IMAGES, read.labels)),
        rng.integers(256, size=(IMAGES, 3072))]).astype(np.uint8)
        for part in read.parts}


def tar_of(contents):
    """{name: bytes or TarInfo} -> the bytes of a gzipped tar."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in {"batches.meta.txt": b"airplane\n", **contents}.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def install(tmp_path, monkeypatch, name, members):
    """install(archive) puts it into a folder, and the table asks for it there."""
    folder = tmp_path / "data" / "cifar"
    folder.mkdir(parents=True)

    def put(archive):
        dataset = hn.DATASETS[name]
        (file,) = dataset.files
        parts = tuple(part._replace(images=IMAGES, sha256=part.sha256 and sha256(
            members[part.name].tobytes())) for part in dataset.read.parts)
        monkeypatch.setitem(hn.DATASETS, name, dataset._replace(
            files=(file._replace(gz_sha256=sha256(archive), gz_bytes=len(archive)),),
            images=(IMAGES * (len(parts) - 1), IMAGES),
            read=replace(dataset.read, parts=parts), mirrors=()))
        (folder / file.name).write_bytes(archive)
        return folder / file.name
    return put


def whole(members):
    return {name: rows.tobytes() for name, rows in members.items()}


def test_an_official_archive(name, install, members):
    path = install(tar_of(whole(members)))
    data = obtain(name, path.parent)
    *train, test = members.values()
    labels = 2 if name == "cifar100" else 1         # the last is the fine one
    for rows, x, y in ((np.vstack(train), data.x_train, data.y_train),
                       (test, data.x_test, data.y_test)):
        assert x.dtype == y.dtype == np.uint8 and not x.flags.writeable
        assert np.array_equal(x, rows[:, labels:])
        assert np.array_equal(y, rows[:, labels - 1])
        planes = x.reshape(-1, *hn.DATASETS[name].shape)
        assert planes.shape[1:] == (3, 32, 32)
        assert np.array_equal(planes[3, 2, 5], rows[3, labels + 2048 + 160:][:32])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_archive_that_was_unpacked_by_hand_is_not_taken_for_it(name, install,
                                                                  members):
    path = install(tar_of(whole(members)))
    tar = path.with_suffix("")
    tar.write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    with pytest.raises(hn.DataError, match=rf"{path.name}: there is no such"):
        obtain(name, path.parent)
    assert [file.name for file in path.parent.iterdir()] == [tar.name]


def special(name, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


def short(contents, last):
    return {**contents, last: contents[last][:-1]}


MISSING, ODD = r"no cifar.*bin in it", "is not a regular file of [0-9]+ bytes"
FAULTS = {      # contents, the last of them -> contents, and what is said of them
    "absent": (lambda c, last: {n: c[n] for n in c if n != last}, MISSING),
    "climbing": (lambda c, last: {f"../{n}" if n == last else n: c[n] for n in c},
                 MISSING),
    "absolute": (lambda c, last: {f"/tmp/{n}" if n == last else n: c[n] for n in c},
                 MISSING),
    "symlink": (lambda c, last: {**c, last: special(last, tarfile.SYMTYPE)}, ODD),
    "hard link": (lambda c, last: {**c, last: special(last, tarfile.LNKTYPE)}, ODD),
    "fifo": (lambda c, last: {**c, last: special(last, tarfile.FIFOTYPE)}, ODD),
    "folder": (lambda c, last: {**c, last: special(last, tarfile.DIRTYPE)}, ODD),
    "short": (short, ODD),
    "long": (lambda c, last: {**c, last: c[last] + b"\0"}, ODD),
    "empty": (lambda c, last: {**c, last: b""}, ODD)}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_archive_of_another_layout_is_refused(name, install, members, tmp_path,
                                                 fault):
    spoil, message = FAULTS[fault]
    path = install(tar_of(spoil(whole(members), list(members)[-1])))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hn.DataError, match=message) as caught:
        obtain(name, path.parent)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_rows_of_another_kind_are_refused(name, install, members):
    last, classes = list(members)[-1], hn.DATASETS[name].classes
    wrong = {**members, last: members[last].copy()}
    wrong[last][-1, -3073] = classes
    if name == "cifar100":      # whose rows are known
        path = install(tar_of(whole(wrong)))
        with pytest.raises(hn.DataError, match="test.bin: SHA-256 is not"):
            obtain(name, path.parent)
    members[last] = wrong[last]
    path = install(tar_of(whole(wrong)))
    with pytest.raises(hn.DataError, match=f"label {classes}, largest allowed"):
        obtain(name, path.parent)


def test_what_is_not_the_archive_is_not_unpacked(name, install, members, monkeypatch):
    """By its hash; and a known hash of what is no archive is one line too."""
    good = tar_of(whole(members))
    path = install(good)
    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "open", lambda **_: pytest.fail("unpacked"))
        for content in (good[:-9], good[:-1] + b"x", good + b"x", b"", b"<html>",
                        gzip.compress(gzip.decompress(good), 1)):
            path.write_bytes(content)
            with pytest.raises(hn.DataError, match="SHA-256|more than the"):
                obtain(name, path.parent)
    for content in (good[:-2000], b"x" * 600, gzip.compress(b"x" * 600)):
        path = install(content)
        with pytest.raises(hn.DataError, match="broken archive"):
            obtain(name, path.parent)


def test_an_archive_of_the_other_data_set_is_told_apart(name, install, members,
                                                        monkeypatch):
    path = install(tar_of(whole(members)))
    stranger = hn.DATASETS[name]
    monkeypatch.setitem(hn.DATASETS, name, stranger._replace(files=(
        stranger.files[0]._replace(gz_sha256="0" * 64),)))
    monkeypatch.setitem(hn.DATASETS, "other", stranger)
    with pytest.raises(hn.ForeignData, match="this is cifar.*--data-dir"):
        obtain(name, path.parent)


def test_an_archive_is_fetched_and_mended(name, install, members, tmp_path):
    source = install(tar_of(whole(members)))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(
            Quiet, directory=source.parent)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,),
                         daemon=True).start()
        hn.DATASETS[name] = hn.DATASETS[name]._replace(
            mirrors=(f"http://127.0.0.1:{server.server_port}/",))
        cache = tmp_path / "cache"
        obtain(name, cache)
        (cache / source.name).write_bytes(b"spoiled")
        obtain(name, cache)
        server.shutdown()
    assert (cache / source.name).read_bytes() == source.read_bytes()
    assert (cache / f"{source.name}.bad").read_bytes() == b"spoiled"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_the_command_line_trains_on_it(name, install, members, tmp_path):
    path = install(tar_of(whole(members)))
    record = main(["--dataset", name, "--data-dir", str(path.parent), "--depth", "2",
                   "--epochs", "1", "--batch", "20", "--jobs", "1", "--out",
                   str(tmp_path / "r.json")])
    classes = hn.DATASETS[name].classes
    assert record["dataset"] == name
    assert record["runs"][0]["plain"]["parameters"] == (
        3073 * 50 + 2 * 50 * 51 + classes * 51)


# --------------------------------------------------------------------------------------
# JPEGs


def jpeg(image):
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=75)
    return packed.getvalue()


@pytest.fixture
def jpegs(rng):
    """{name in the zip: JPEG}, of 20 training and 10 test images."""
    return {f"{folder}/{name}/{number:04d}.jpg": jpeg(Image.fromarray(
        rng.integers(256, size=(32, 32, 3)).astype(np.uint8)))
        for folder, count in (("train", 2), ("test", 1))
        for name in cifar.CLASSES for number in range(count)}


@pytest.fixture
def zipped(tmp_path, monkeypatch, jpegs):
    """zipped(contents) packs them where the table asks for `jpegs`."""
    rows = {"train.bin": [], "test.bin": []}
    for number in range(2):
        for label, name in enumerate(cifar.CLASSES):
            for folder in ("train", "test"):
                if packed := jpegs.get(f"{folder}/{name}/{number:04d}.jpg"):
                    planes = np.moveaxis(np.asarray(Image.open(io.BytesIO(packed))),
                                         2, 0)
                    rows[f"{folder}.bin"].append(bytes([label]) + planes.tobytes())
    parts = tuple(cifar.Part(name, len(part), sha256(b"".join(part)))
                  for name, part in rows.items())
    dataset = hn.DATASETS["cifar10-jpeg75"]
    monkeypatch.setitem(hn.DATASETS, "cifar10-jpeg75", dataset._replace(
        images=(20, 10), read=replace(dataset.read, parts=parts)))
    folder = tmp_path / "jpegs"
    folder.mkdir()

    def pack(contents):
        with zipfile.ZipFile(folder / "cifar10-jpeg75.zip", "w") as packed:
            for name, content in contents.items():
                packed.writestr(name, content)
        return folder
    pack(jpegs)
    return pack


def load(folder):
    return obtain("cifar10-jpeg75", folder)


def test_jpegs_are_decoded_once(zipped, jpegs, monkeypatch):
    folder = zipped(jpegs)
    data = load(folder)
    assert data.y_train.tolist() == [*range(10)] * 2
    assert data.y_test.tolist() == [*range(10)]
    planes = data.x_train.reshape(-1, *hn.DATASETS["cifar10-jpeg75"].shape)
    truck = Image.open(io.BytesIO(jpegs["train/truck/0001.jpg"]))
    assert np.array_equal(np.moveaxis(planes[19], 0, 2), np.asarray(truck))
    monkeypatch.setattr(cifar, "read_jpeg", lambda *_: pytest.fail("decoded again"))
    (folder / "cifar10-jpeg75.zip").unlink()
    again = load(folder)
    assert np.array_equal(again.x_train, data.x_train)
    path = folder / "test.bin"
    for content in (path.read_bytes()[:-1] + b"x", path.read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(hn.DataError, match="test.bin: SHA-256.*Delete it"):
            load(folder)
        assert path.read_bytes() == content


def test_a_zip_as_a_download_of_the_repository(zipped, jpegs):
    """In a folder of its own; and as a Mac packs it, with another beside it."""
    folder = zipped({"__MACOSX/images-master/train/airplane/._0000.jpg": b"",
                     **{f"images-master/{name}": content
                        for name, content in jpegs.items()}})
    assert len(load(folder).x_train) == 20


def test_a_folder_that_is_only_read(zipped, jpegs, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "no")
    monkeypatch.setattr(cifar, "write_file", refuse)
    folder = zipped(jpegs)
    assert len(load(folder).x_train) == 20
    assert [path.name for path in folder.iterdir()] == ["cifar10-jpeg75.zip"]


ONE = "test/frog/0000.jpg"


def other(size=(32, 32), mode="RGB", kind="JPEG"):
    packed = io.BytesIO()
    Image.new(mode, size).save(packed, kind)
    return packed.getvalue()


@pytest.mark.parametrize("name, content, message", [
    (ONE, b"", "test/frog/0000.jpg is no JPEG"), (ONE, b"<html>", "is no JPEG"),
    (ONE, other()[:400], "is no JPEG"), (ONE, other(kind="PNG"), "is no JPEG"),
    (ONE, other((16, 32)), "16, 32"), (ONE, other((9000, 9000)), "no JPEG"),
    (ONE, other(mode="L"), "L of"), (ONE, other(), "another decoder of JPEGs"),
    (f"../{ONE}", other(), "no item named"), (f"/{ONE}", other(), "no item named")])
def test_other_jpegs_are_refused(zipped, jpegs, tmp_path, name, content, message):
    contents = {other: jpegs[other] for other in jpegs if other != ONE}
    folder = zipped({**contents, name: content})
    with pytest.raises(hn.DataError, match=message) as caught:
        load(folder)
    assert "YoongiKim" in str(caught.value) and "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
        "cifar10-jpeg75.zip", "train.bin"]


@pytest.mark.parametrize("content, message", [
    (None, "no such file"), (b"", "broken zip"), (b"x" * 100, "broken zip")])
def test_what_is_no_zip_is_refused(zipped, jpegs, content, message):
    path = zipped(jpegs) / "cifar10-jpeg75.zip"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(hn.DataError, match=message):
        load(path.parent)
