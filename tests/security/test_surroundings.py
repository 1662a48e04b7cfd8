"""What surrounds the models: devices, links, foreign programs, names that forge lines, closed streams, bad caches."""

import json
import logging
import os
import resource
import subprocess
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cascades import detect
from tests.commands import whet_here
from tests.detectors import bull_file, bull_scene, detector, mixed_detector
from tests.fuzz.harness import isolated
from tests.security.test_model_file_attacks import closed, opened, with_header_changed

from whet._kernels import jit
from whet.detector.base import MOST_FACTS, DetectorBase, Provenance
from whet.detector.detector import Detector
from whet.errors import CannotWriteError, CascadeFileError, ModelFileError, UnreadableImageError
from whet.images.detections import suppress_non_maxima
from whet.images.pyramid import Pyramid
from whet.io.files import printable, write_atomically, write_locked
from whet.io.image_files import find_images, read_grey
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.cascade_scan import scan_images
from whet.opencv.xml_reader import MAX_TREE_NODES, parse_opencv


@pytest.fixture
def scene(tmp_path):
    Image.fromarray(bull_scene()).save(tmp_path / "scene.png")
    return tmp_path / "scene.png"


# Files


def test_a_write_protected_file_is_not_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(CannotWriteError, match=r"write-protected; run chmod"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_private_file_is_never_readable_by_others_while_it_is_written(tmp_path, monkeypatch):
    path, seen = tmp_path / "a", []
    path.write_bytes(b"old")
    path.chmod(0o600)
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(os.fstat(file).st_mode & 0o777) or sync(file))
    write_atomically(path, b"new")
    assert seen[0] == 0o600


def test_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotWriteError, match="a device, a pipe or a socket"):
        write_atomically(tmp_path / "pipe", b"new")


def test_what_killed_writers_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    for name in (".a.whet.0123abcd.tmp", ".a.whet.tmp", ".b.whet.0123abcd.tmp", "a.whet.0123abcd.tmp"):
        (tmp_path / name).touch()
    write_locked(tmp_path / "a.whet", b"new")
    assert sorted(os.listdir(tmp_path)) == [".a.whet.tmp", ".b.whet.0123abcd.tmp", "a.whet", "a.whet.0123abcd.tmp"]


def test_a_full_disk_names_the_file_and_leaves_it(tmp_path):
    """Two pages of memory are free: the write stops in the middle, as on a full disk."""
    path = tmp_path / "a.whet"
    path.write_bytes(b"old")

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        try:
            write_locked(path, bytes(100_000))
        except CannotWriteError as error:
            return f"refused\n{error}"
        return "accepted"

    outcome = isolated(fill)
    assert outcome.kind == "refused", outcome.text
    assert outcome.text.startswith(f"cannot write {path}: File too large; the file is as it was")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.whet"]


# Images


def test_a_pipe_is_no_image_and_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    for path in (tmp_path / "a.png", Path("/dev/zero")):
        with pytest.raises(UnreadableImageError, match="a device, a pipe or a socket"):
            read_grey(path)


def test_postscript_starts_no_program_whatever_its_suffix(tmp_path, monkeypatch):
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n")
    with pytest.raises(UnreadableImageError, match="expected one of JPEG"):
        read_grey(tmp_path / "a.png")
    assert not (tmp_path / "started").exists()


@pytest.mark.usefixtures("scene")
def test_links_that_lead_back_end(tmp_path):
    for number in range(4):
        (tmp_path / f"link{number}").symlink_to(".")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b.png").touch()
    found = find_images([f"{tmp_path}/**/*.png"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["inner/b.png", "scene.png"]


def test_patterns_find_what_they_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/1.png", "a/b/2.png", ".hidden/3.png", "a/.4.png", "a/c/d/10.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    assert find_images(["a/*/*.png"]) == [Path("a/b/2.png")]
    assert find_images(["**/**/[12]*.png"]) == [Path("a/1.png"), Path("a/b/2.png"), Path("a/c/d/10.png")]
    assert find_images(["**"]) == find_images(["a"])
    assert find_images([".h*/*.png"]) == [Path(".hidden/3.png")]
    assert find_images([f"../{tmp_path.name}/[a]/?.png"]) == [Path("..") / tmp_path.name / "a/1.png"]


# Names and streams


def test_names_and_facts_print_no_control_characters(tmp_path, monkeypatch, capsys, scene):
    forged = "a\x1b[2J\nwhet: forged\u202e"
    (tmp_path / f"{forged}.png").write_bytes(scene.read_bytes())
    (tmp_path / f"bad{forged}.png").write_bytes(b"no image")
    data = with_header_changed(detector().to_bytes(), lambda h: h["provenance"]["facts"].update({forged: forged}))
    (tmp_path / "a.whet").write_bytes(data)
    model = bull_file(tmp_path)
    for done in (
        whet_here(monkeypatch, capsys, "detect", model, tmp_path),
        whet_here(monkeypatch, capsys, "inspect", tmp_path / "a.whet"),
    ):
        assert "\x1b" not in done.out + done.err
        assert "\u202e" not in done.out + done.err
        assert "forged" in done.out
        assert not any(line.startswith("whet: forged") for line in (done.out + done.err).splitlines())
    assert printable("a\x00\x7f\x85b\u2028") == "a\\x00\\x7f\\x85b\\u2028"


def test_a_byte_that_is_a_control_character_of_8_bits_is_not_printed(tmp_path, scene):
    name = os.fsencode(tmp_path) + b"/a\x9b2Jforged.png"
    Path(os.fsdecode(name)).write_bytes(scene.read_bytes())
    model = bull_file(tmp_path)
    command = [sys.executable, "-m", "whet", "detect", str(model), name]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"forged" in done.stdout
    assert b"\x9b" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed_stream", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_give_no_traceback(closed_stream, tmp_path, scene):
    model = bull_file(tmp_path)
    command = f"'{sys.executable}' -m whet detect '{model}' '{scene}' - {closed_stream}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


# Bounds


@pytest.mark.parametrize(
    "options",
    [
        ("--max-size", "nan"),
        ("--max-size", "-5"),
        ("--max-size", "0"),
        ("--min-size", "inf"),
        ("--scale-factor", "1.00001"),
        ("--scale-factor", "inf"),
        ("--scale-factor", "nan"),
    ],
)
def test_options_beyond_reason_are_usage_errors(options, tmp_path, monkeypatch, capsys, scene):
    done = whet_here(monkeypatch, capsys, "detect", bull_file(tmp_path), scene, *options)
    assert done.code == 2
    assert options[0] in done.err


@pytest.mark.parametrize("step", [200, 3_000_000, 2**31, 2**70])
def test_a_step_beyond_the_image_has_one_window_a_level(step):
    made = mixed_detector()
    cascade = made.base.model.cascade
    every = cascade.votes.unlimited
    (found,) = scan_images(cascade, [bull_scene()], step=step, votes=every, threads=1)
    (first,) = scan_images(cascade, [bull_scene()[:10, :8]], votes=every, threads=1)
    assert (found.n_windows, found.scores.tolist()) == (1, first.scores.tolist())
    assert len(made.detect(bull_scene(), step=step, grouping=None, min_score=-1e9)) <= len(
        Pyramid.from_image(bull_scene(), made.window).levels
    )


def slow_suppression(boxes, scores, iou):
    """The winner of each box: the definition, one box after the other."""
    from whet.images.boxes import box_iou

    order = np.argsort(boxes[:, 0], kind="stable")
    winner = np.full(len(boxes), -1)
    for i in order[np.argsort(-scores[order], kind="stable")]:
        if winner[i] < 0:
            winner[(winner < 0) & (box_iou(boxes[i : i + 1], boxes)[0] >= iou)] = i
            winner[i] = i
    return winner


def test_suppression_by_classes_of_size_is_suppression(rng):
    for _ in range(100):
        corners = rng.integers(0, 60, (rng.integers(1, 60), 2)).astype(np.float64)
        boxes = np.hstack([corners, corners + rng.integers(0, 40, corners.shape)])
        scores, iou = rng.integers(1, 6, len(boxes)).astype(np.float64), float(rng.choice([0.1, 0.3, 0.5, 1.0]))
        groups = suppress_non_maxima(boxes, scores, iou=iou)
        assert np.array_equal(groups.boxes[groups.group], boxes[slow_suppression(boxes, scores, iou)])


def test_a_huge_tree_is_refused():
    n = MAX_TREE_NODES + 1
    nodes = " ".join(f"{i + 1 if i < n - 1 else -n} {-i} 0 0.5" for i in range(n))
    text = (
        "<opencv_storage><cascade><stageType>BOOST</stageType><featureType>HAAR</featureType><height>20</height>"
        "<width>20</width><featureParams><maxCatCount>0</maxCatCount></featureParams><stages><_><stageThreshold>0"
        f"</stageThreshold><weakClassifiers><_><internalNodes>{nodes}</internalNodes><leafValues>{'1 ' * (n + 1)}"
        "</leafValues></_></weakClassifiers></_></stages><features><_><rects><_>0 0 4 4 -1.</_></rects></_></features>"
        "</cascade></opencv_storage>"
    )
    with pytest.raises(CascadeFileError, match="a tree of 1,001 nodes"):
        parse_opencv(text.encode())


# Model files


@pytest.mark.parametrize("weight", [1e41, 1e308, np.inf, np.nan])
def test_weights_whose_sums_are_no_numbers_are_refused(weight):
    header, tensors = opened(mixed_detector().to_bytes())
    tensors = {name: array.copy() for name, array in tensors.items()}
    tensors["model.stage000.coef"][:] = weight
    with pytest.raises(ModelFileError, match="finite numbers, and weights at most"):
        Detector.from_bytes(closed(header, tensors))


def test_the_heaviest_weights_give_finite_scores_and_json(tmp_path, monkeypatch, capsys, scene):
    from dataclasses import replace

    stage = mixed_detector().base.model.stages[0]
    heavy = replace(stage, coef=np.full(len(stage), 1e40), threshold=-1e40)
    Detector.from_base(DetectorBase(CascadeModel((10, 8), (heavy, heavy)))).save(tmp_path / "a.whet")
    done = whet_here(monkeypatch, capsys, "detect", tmp_path / "a.whet", scene, "--json", "--min-size", "60")

    def fail(name):
        raise AssertionError(name)

    (found,) = json.loads(done.out, parse_constant=fail)
    assert found["scores"]
    assert np.isfinite(found["scores"]).all()


def test_provenance_is_bounded():
    with pytest.raises(ValueError, match="at most 1,000"):
        Provenance(facts=dict.fromkeys(map(str, range(MOST_FACTS + 1)), 1))
    with pytest.raises(ValueError, match="at most 10,000"):
        Provenance(data="a" * 10_001)

    def extended(header):
        header["model"]["stages"].extend([header["model"]["stages"][0]] * 1000)

    many = with_header_changed(detector().to_bytes(), extended)
    with pytest.raises(ModelFileError, match="at most 1,000"):
        Detector.from_bytes(many)


# The cache of compiled kernels


@pytest.fixture
def compile_twice(tmp_path, monkeypatch, caplog):
    """Define one kernel in a module of its own, twice, with the cache in a directory; returns the second result."""
    import numba

    (tmp_path / "made.py").write_text("def double(x):\n    return x * 2\n")
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "_warned", [])
    caplog.set_level(logging.DEBUG, "whet")

    def made():
        spec = util.spec_from_file_location("made", tmp_path / "made.py")
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return jit.kernel(module.double)

    def run(damage):
        assert made()(3.0) == 6.0
        damage(tmp_path / "cache")
        return made()

    return run


def damaged(suffix, change):
    def damage(folder):
        (path,) = folder.rglob(f"*.{suffix}")
        path.write_bytes(change(path.read_bytes()))

    return damage


def flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "change", [lambda _: b"", lambda data: data[: len(data) // 2], flipped, lambda _: b"\x80\x04N."]
)
def test_a_damaged_cache_is_compiled_over(suffix, change, compile_twice):
    again = compile_twice(damaged(suffix, change))
    assert again(4.0) == 8.0
    assert sum(again._cache_hits.values()) == 0
    third = compile_twice(lambda _: None)
    assert third(5.0) == 10.0
    assert sum(third._cache_hits.values()) == 1  # the bad file was replaced


def test_a_kernel_is_compiled_again_when_another_file_of_kernels_changes(compile_twice, monkeypatch):
    """A kernel contains what it calls: a cached one would hide an error in the file that changed."""

    def change(_):
        name, time, size = jit._sources()[0]
        changed = ((name, time + 1, size), *jit._sources()[1:])
        monkeypatch.setattr(jit, "_sources", lambda: changed)

    again = compile_twice(change)
    assert again(4.0) == 8.0
    assert sum(again._cache_hits.values()) == 0


def test_a_cache_that_cannot_be_written_costs_time_and_not_the_result(compile_twice, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    def fill(_):
        monkeypatch.setattr(jit._CheckedFile, "_open_for_write", refuse)
        monkeypatch.setattr(jit._CheckedFile, "_load_index", lambda _: {})

    assert compile_twice(fill)(4.0) == 8.0
    assert "No space left on device" in caplog.text
    assert "NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.slow
def test_detection_runs_without_any_place_for_a_cache():
    """A read-only home and read-only packages (numba#5566): root may write anywhere, so the places are files here."""
    package = Path(jit.__file__).parents[1]
    code = (
        "import numba.core.caching as c\n"
        "for one in c.CacheImpl._locator_classes: one.ensure_cache_path = lambda _: (_ for _ in ()).throw(OSError())\n"
        "from whet._kernels.box_overlaps import root; from whet._kernels.jit import is_compiled; import numpy as np\n"
        "assert root(np.array([0, 0, 1]), 2) == 0 and not is_compiled(root)"
    )
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiled code cannot be kept") == 1


def test_all_windows_of_a_cascade_that_accepts_everything_are_grouped(rng):
    """A hundred thousand windows of all sizes: the work grows with the groups of their own size."""
    from dataclasses import replace

    stage = mixed_detector().base.model.stages[0]
    every = CascadeModel((10, 8), (replace(stage, threshold=-1e3, coef=np.abs(stage.coef)),))
    found = detect(every, rng.integers(0, 256, (200, 200), dtype=np.uint8), threads=1)
    assert len(found.windows.scores) > 90_000
    assert 0 < len(found) < 3000
