"""Images at URLs: the same pixels, the same detectors, and an error with its cause and what to do for all else."""

import json
import pickle
import socket
import subprocess
import sys
from dataclasses import replace

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image
from tests.commands import whet_here
from tests.remote_store import http_store, memory_store

import whet
from whet.cli.options import ExitCode
from whet.errors import AnnotationError, CannotWriteError, DataNotFoundError, RemoteError, UnreadableImageError
from whet.io import remote
from whet.io.annotations.annotation import Examples
from whet.io.annotations.formats import FORMATS, read_annotations, write_annotations
from whet.io.files import as_path, short_hash, short_hashes
from whet.io.image_files import as_grey, find_images, image_shape
from whet.training.backgrounds import image_faults


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a.png", "b 1.png", "deep/c10.png", "deep/c2.png", "deep/.hidden.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 60), dtype=np.uint8)).save(path)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    (tmp_path / "boxes.csv").write_text("a.png,1,2,30,20,van\ndeep/c2.png,5,5,20,20,van\n")
    return tmp_path


@pytest.fixture(params=[http_store, memory_store], ids=["http", "memory"])
def store(request, folder):
    with request.param(folder) as opened:
        yield opened[0] if isinstance(opened, tuple) else opened


@pytest.fixture
def server(folder):
    with http_store(folder) as opened:
        yield opened


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(remote, "PAUSE", 0.01)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setenv(remote.TIMEOUT_VARIABLE, "0.5")


def test_an_image_at_a_url_has_the_pixels_size_and_hash_of_its_file(store, folder):
    here, there = folder / "images/a.png", f"{store}/images/a.png"
    np.testing.assert_array_equal(as_grey(there), as_grey(here))
    assert image_shape(as_path(there)) == image_shape(here)
    assert short_hash(as_path(there)) == short_hash(here)
    assert as_path(there).stat().st_size == here.stat().st_size


def test_a_directory_at_a_url_has_the_images_of_the_directory_in_the_same_order(store, folder):
    names = [str(path.relative_to(folder)) for path in find_images([folder / "images"])]
    found = [str(path).removeprefix(f"{store}/") for path in find_images([f"{store}/images/"])]
    assert found == names == ["images/a.png", "images/b 1.png", "images/deep/c2.png", "images/deep/c10.png"]
    for path, url in zip(find_images([folder / "images"]), find_images([f"{store}/images"]), strict=True):
        np.testing.assert_array_equal(as_grey(path), as_grey(url))


def test_a_path_of_a_url_can_be_sent_to_another_process_and_sorts_with_files(store, folder):
    path = as_path(f"{store}/images/a.png")
    twin = pickle.loads(pickle.dumps(path))
    assert twin == path
    assert hash(twin) == hash(path)
    assert str(twin) == f"{store}/images/a.png"
    assert len({path, twin, folder}) == 2
    assert sorted([path, folder / "a.png", path.parent])
    np.testing.assert_array_equal(as_grey(twin), as_grey(path))


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"crops"}))  # which are images
def test_annotations_of_every_format_find_their_images_below_a_url(form, store, folder):
    (folder / "flat.csv").write_text("a.png,1,2,30,20,van\nb 1.png,5,5,20,20,van\n")
    local = read_annotations(folder / "flat.csv", images=folder / "images")
    target = folder / "written" / (FORMATS[form].file_name or form)
    write_annotations(local, target, form)
    if form == "yolo":  # the labels here, the images elsewhere
        (target / "labels/train").rename(target / "moved")
        (target / "labels").rmdir()
        (target / "moved").rename(target / "labels")
    found = read_annotations(target, form, f"{store}/images")
    found = replace(found, images=tuple(image for image in found.images if len(image)))
    by_name = {image.path.name: image for image in local.images}
    assert {image.path.name for image in found.images} == set(by_name)
    for image in found.images:
        assert str(image.path).startswith(store)
        np.testing.assert_allclose(image.boxes, by_name[image.path.name].boxes, atol=1e-6)


def test_several_images_at_urls_are_read_at_once_and_stay_in_order(server, folder):
    names = ["a.png", "b 1.png", "deep/c10.png", "deep/c2.png"]
    (folder / "boxes.csv").write_text("".join(f"{name},1,2,30,20,van\n" for name in names))
    url = f"{server[0]}/paired/images"
    found = read_annotations(folder / "boxes.csv", images=url)
    assert not found.problems
    paths = [image.path for image in found.images]
    assert [str(path) for path in paths] == [f"{url}/{name}" for name in names]
    assert [image.path for image in Examples.from_annotations(negatives=paths).images] == paths
    assert not image_faults(paths, (24, 24))
    np.testing.assert_array_equal(short_hashes(paths), short_hashes(folder / "images" / name for name in names))


def test_an_annotation_file_at_a_url_has_its_images_beside_it(store):
    found = read_annotations(f"{store}/boxes.csv", images=f"{store}/images")
    assert found.n_boxes == 2
    with pytest.raises(DataNotFoundError, match="no such object"):
        read_annotations(f"{store}/boxes.csv")  # no a.png beside it
    with pytest.raises(AnnotationError, match="download"):
        read_annotations(f"{store}/images")


# Names that lead out of their directory once they are unquoted, as requests do, or without what requests leave out.
HIDDEN = [
    "%2e%2e/secret.png",
    "deep/.%2E/%2e./secret.png",
    "%252e%252e/secret.png",
    "..%2fsecret.png",
    "%2e%2e%5csecret.png",
    ".\t./secret.png",
    "%" + "25" * 1000 + "2e./secret.png",
]


def test_urls_in_a_file_are_followed_only_below_the_url_that_the_user_gave(server, folder):
    url, asked = server
    rows = [
        f"{url}/images/a.png",
        f"{url}/elsewhere/b.png",
        f"{url}/images/../secret.png",
        "memory://other/c.png",
        *(f"{url}/images/{hidden}" for hidden in HIDDEN),
    ]
    lists = folder / "lists"
    lists.mkdir()
    (lists / "urls.csv").write_text("".join(f"{row},1,2,30,20,van\n" for row in rows))
    coco = {"images": [{"id": n, "file_name": row} for n, row in enumerate(rows)], "annotations": [], "categories": []}
    (lists / "urls.json").write_text(json.dumps(coco))
    for name in ("urls.csv", "urls.json"):
        with pytest.raises(DataNotFoundError, match="--images URL"):
            read_annotations(lists / name)
        assert not asked
        found = read_annotations(lists / name, images=f"{url}/images")
        assert [str(image.path) for image in found.images] == [f"{url}/images/a.png"]
        assert all("images=URL" in str(problem) for problem in found.problems)
        assert len(found.problems) == 3 + len(HIDDEN)
        assert not any("elsewhere" in path or "secret" in path for path in asked)
        asked.clear()
    coco["images"] = [{"id": n, "file_name": name} for n, name in enumerate(["a.png", *HIDDEN])]
    (lists / "names.json").write_text(json.dumps(coco))
    found = read_annotations(lists / "names.json", images=f"{url}/images")
    assert [str(image.path) for image in found.images] == [f"{url}/images/a.png"]
    assert not any("secret" in path for path in asked)


def test_a_name_stays_in_the_bucket_of_the_images(folder):
    with memory_store(folder) as store:
        fsspec.filesystem("memory").pipe("/other/b.png", (folder / "images/a.png").read_bytes())
        (folder / "boxes.csv").write_text(f"a.png,1,2,30,20,van\n{store}/images/x::/other/b.png,1,2,30,20,van\n")
        found = read_annotations(folder / "boxes.csv", images=f"{store}/images")
        assert [str(image.path) for image in found.images] == [f"{store}/images/a.png"]


def test_an_absolute_name_of_another_machine_is_the_image_of_that_name_below_the_url(store, folder):
    (folder / "boxes.csv").write_text("C:\\ada\\a.png,1,2,30,20,van\n/home/ada/../b/a.png,3,2,30,20,van\n")
    found = read_annotations(folder / "boxes.csv", images=f"{store}/images")
    assert [str(image.path) for image in found.images] == [f"{store}/images/a.png"]


def test_a_file_url_is_a_file(folder):
    path = folder / "images/b 1.png"
    assert as_path(path.as_uri()) == path
    assert type(as_path(path.as_uri())) is type(path)
    np.testing.assert_array_equal(as_grey(path.as_uri()), as_grey(path))
    assert find_images([(folder / "images").as_uri()]) == find_images([folder / "images"])


def test_a_chained_url_keeps_downloads_in_a_cache(server, folder):
    url, asked = server
    here, there = folder / "images/a.png", f"simplecache::{url}/images/a.png"
    np.testing.assert_array_equal(as_grey(there), as_grey(here))
    asked.clear()
    np.testing.assert_array_equal(as_grey(there), as_grey(here))
    assert not asked


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("denied/a.png", "credentials"),
        ("gone/a.png", "no such object"),
        ("broken/a.png", "500"),
        ("half/a.png", "too early"),
        pytest.param("slow/a.png", "did not answer within 0.5 s", marks=pytest.mark.slow),
        ("images/notes.txt", "expected one of JPEG"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_one_bad_image_is_reported_with_its_cause_and_the_others_are_read(server, name, said):
    url, _ = server
    with pytest.raises(UnreadableImageError, match=said) as caught:
        as_grey(f"{url}/{name}")
    assert name in str(caught.value)
    found = Examples.from_annotations(negatives=map(as_path, [f"{url}/{name}", f"{url}/images/a.png"]))
    assert [image.path.name for image in found.images] == ["a.png"]
    assert len(found.unread) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_bad_root_is_an_error_at_once(server, folder):
    url, asked = server
    free = socket.socket()
    free.bind(("127.0.0.1", 0))  # and does not listen
    port = free.getsockname()[1]
    for root, said in (
        (f"{url}/slow", "did not answer"),
        (f"http://127.0.0.1:{port}/images", "cannot connect"),
        ("http://no-such-host.invalid/images", "cannot connect"),
        (f"{url}/broken", "500"),
        ("memory://nothing/there", "does not exist"),
        ("nothing://there/images", "Protocol not known"),
        (f"{url}//images", "empty parts"),
    ):
        asked.clear()
        with pytest.raises(DataNotFoundError, match=said):
            read_annotations(folder / "boxes.csv", images=root)
        assert len(asked) <= 1
        with pytest.raises(DataNotFoundError):
            find_images([root])
    free.close()


def test_a_server_that_lists_nothing_serves_the_images_that_are_named(server, folder):
    url, _ = server
    with pytest.raises(RemoteError, match="access denied"):
        find_images([f"{url}/denied"])
    (folder / "images/index.html").write_text("nothing here")
    assert read_annotations(folder / "boxes.csv", images=f"{url}/images").n_boxes == 2
    with pytest.raises(DataNotFoundError, match=r"none of the 2 annotated images can be read.*credentials"):
        read_annotations(folder / "boxes.csv", images=f"{url}/denied")


def test_a_download_takes_bounded_memory(server, monkeypatch):
    url, _ = server
    monkeypatch.setattr(remote, "MAX_BYTES", 1_000_000)
    with pytest.raises(UnreadableImageError, match="more than 1,000,000 bytes"):
        as_grey(f"{url}/endless/a.png")


class Locked(MemoryFileSystem):
    """A store with wrong credentials; stores of clouds raise errors of their own packages."""

    protocol = "locked"

    class NoCredentialsError(Exception):
        """As botocore's."""

    def _refuse(self, *_, **__):
        raise self.NoCredentialsError("Unable to locate credentials")

    ls = find = info = isdir = isfile = exists = open = cat_file = _refuse


def test_wrong_credentials_of_any_store_are_named(folder):
    fsspec.register_implementation("locked", Locked, clobber=True)
    for attempt in (
        lambda: as_grey("locked://bucket/a.png"),
        lambda: find_images(["locked://bucket/images"]),
        lambda: read_annotations(folder / "boxes.csv", images="locked://bucket/images"),
        lambda: read_annotations("locked://bucket/boxes.csv"),
    ):
        with pytest.raises((UnreadableImageError, RemoteError), match=r"access denied.*check the credentials"):
            attempt()


def test_a_store_whose_package_is_missing_says_what_to_install():
    if "s3fs" in sys.modules or "gcsfs" in sys.modules:
        pytest.skip("s3fs or gcsfs is installed")
    with pytest.raises(RemoteError, match=r"(?i)install"):
        as_path("s3://bucket/a.png")


def test_exit_codes_of_urls_are_those_of_files(server, folder, monkeypatch, capsys):
    url, _ = server
    (folder / "images/bad.png").write_text("no image")
    for name, code in (("images/gone.png", ExitCode.DATA_MISSING), ("images/bad.png", ExitCode.FAILED)):
        assert whet_here(monkeypatch, capsys, "detect", "face", folder / name).code == code
        assert whet_here(monkeypatch, capsys, "detect", "face", f"{url}/{name}").code == code

    def refuse(_):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", refuse)
    done = whet_here(monkeypatch, capsys, "detect", "face", "s3://bucket/a.png")
    assert done.code == ExitCode.EXTRA_MISSING
    assert "s3fs" in done.err


def test_without_the_extra_a_url_says_how_to_install_it_and_files_need_nothing(folder):
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "import whet; from whet.io.image_files import as_grey\n"
        f"as_grey({str(folder / 'images/a.png')!r})\n"
        "try: as_grey('https://host/a.png')\n"
        "except whet.errors.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "whet[remote]" in done.stdout


def test_reading_files_imports_neither_fsspec_nor_the_reader_of_urls(folder):
    code = (
        "import sys; from whet.io.image_files import find_images\n"
        "from whet.io.annotations.formats import read_annotations\n"
        f"find_images([{str(folder / 'images')!r}])\n"
        f"read_annotations({str(folder / 'boxes.csv')!r}, images={str(folder / 'images')!r})\n"
        "print([name for name in sys.modules if name.startswith(('fsspec', 'aiohttp', 'whet.io.remote'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_outputs_are_files(folder):
    found = read_annotations(folder / "boxes.csv", images=folder / "images")
    for attempt in (
        lambda: write_annotations(found, "s3://bucket/boxes.csv"),
        lambda: whet.load("face").save("s3://bucket/mine.whet"),
    ):
        with pytest.raises(CannotWriteError, match="local files only"):
            attempt()


@pytest.mark.parametrize("fault", ["broken", "half", "slow"])
@pytest.mark.usefixtures("impatient")
def test_a_failure_that_passes_is_not_noticed(folder, fault):
    once = {"/images/a.png": fault}
    with http_store(folder, once) as (url, asked):
        np.testing.assert_array_equal(as_grey(f"{url}/images/a.png"), as_grey(folder / "images/a.png"))
        assert not once
        assert asked == ["GET /images/a.png"] * 2


def test_what_fails_for_a_reason_is_asked_for_once(server):
    url, asked = server
    for name in ("denied", "gone"):
        with pytest.raises(UnreadableImageError):
            as_grey(f"{url}/{name}/a.png")
        assert len(asked) == 1
        asked.clear()
    with pytest.raises(UnreadableImageError):
        as_grey(f"{url}/broken/a.png")
    assert len(asked) == 2


def test_a_signature_in_a_url_stays_out_of_what_is_learned_and_of_messages(server, folder):
    url, _ = server
    rng = np.random.default_rng(1)
    Image.fromarray(rng.integers(0, 256, (60, 80), dtype=np.uint8)).save(folder / "images/a.png")
    detector = whet.load("face")
    detector.learn(f"{url}/images/a.png?signature=secret", [[5, 5, 45, 49]], True)
    assert detector.records[0].name == "a.png"
    assert b"secret" not in detector.to_bytes()
    for name in ("gone/a.png", "denied/a b.png", "half/a.png", "broken/a.png", "images/notes.txt"):
        with pytest.raises(UnreadableImageError) as caught:
            as_grey(f"{url}/{name}?signature=%2Fsecret%7E")  # a request quotes it in another way
        assert name.split("/")[0] in str(caught.value)
        assert "secret" not in str(caught.value)


def test_a_password_in_a_url_stays_out_of_messages(server, folder):
    address = server[0].removeprefix("http://")
    (folder / "empty.json").write_text('{"images": [], "annotations": []}')
    (folder / "broken.csv").write_text("a.png,1,2,30,20,van\na.png,1,2\n")
    for user in ("ada:secret", "ada:se@secret"):
        url = f"http://{user}@{address}"
        for attempt in (
            lambda url=url: as_grey(f"{url}/gone/a.png"),
            lambda url=url: as_grey(f"{url}/images/notes.txt"),
            lambda url=url: read_annotations(f"{url}/images"),
            lambda url=url: read_annotations(f"{url}/empty.json?secret"),
            lambda url=url: read_annotations(folder / "boxes.csv", images=f"{url}/gone"),
            lambda url=url: read_annotations(folder / "boxes.csv", images=f"{url}/denied"),
            lambda url=url: as_grey(f"{url}//a.png"),
            lambda user=user: as_grey(f"nothing://{user}@host/a.png"),
            lambda url=url: find_images([f"{url}/gone"]),
        ):
            with pytest.raises(whet.errors.WhetError) as caught:
                attempt()
            assert "secret" not in str(caught.value)
            assert "cret@" not in str(caught.value)
    found = read_annotations(f"{server[0]}/broken.csv?secret", images=f"{server[0]}/images")
    assert found.problems
    assert not any("secret" in str(problem) for problem in found.problems)
