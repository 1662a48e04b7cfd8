"""A scan takes bounded memory, whatever the image and the model: in parts it finds what it finds as a whole."""

import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.channels import colourful, random_detector
from tests.detectors import bull_finder, bull_scene

import whet
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import ImageMemoryError, UnreadableImageError
from whet.images import pyramid as pyramids
from whet.images import scan_memory
from whet.images.pyramid import Pyramid, level_scales
from whet.io.image_files import as_array, as_grey
from whet.models.channels.channels import GRID, level_cells, part_of_level
from whet.models.gslda import cascade_scan

ROOT = Path(__file__).parents[2]
# As much as a test may use beyond what Python and the compiled kernels take at its start.
MOST_PEAK = 1500


def accepting(detector: Detector, *, everything: bool) -> Detector:
    """A detector of the same trees that accepts every window, or none."""
    model = detector.base.model
    limits = np.full_like(model.votes.limits, -np.inf)
    limits[-1] = -1e6 if everything else 1e6
    votes = replace(model.votes, limits=limits, threshold=limits[-1:].copy())
    return Detector.from_base(DetectorBase(replace(model, votes=votes)), reporting=detector.reporting)


def in_parts(monkeypatch, pixels=1 << 12):
    """Small parts, for every image."""
    monkeypatch.setattr(scan_memory, "PART_PIXELS", pixels)
    monkeypatch.setattr(scan_memory.ScanMemory, "is_in_parts", lambda *_: True)


def same(one, other):
    for name in ("scale", "y", "x"):
        assert np.array_equal(getattr(one.windows.index, name), getattr(other.windows.index, name))
    assert np.array_equal(one.windows.scores, other.windows.scores)
    assert np.array_equal(one.to_array(), other.to_array())
    assert len(one.windows) > 0


@pytest.mark.parametrize("options", [{}, {"step": 2}, {"min_size": 10}, {"scale_factor": 1.4}, {"threads": 1}])
def test_trees_find_the_same_in_parts(monkeypatch, options, rng):
    detector, image = random_detector(), colourful((190, 230), rng)
    whole = detector.detect(image, **options)
    in_parts(monkeypatch)
    same(detector.detect(image, **options), whole)


@pytest.mark.slow
def test_corrections_find_the_same_in_parts(monkeypatch, rng):
    detector, image = random_detector(), colourful((150, 170), rng)
    detector.learn(image, detector.detect(image).boxes[:2], False)
    detector.learn(image, [[30, 30, 70, 70]], True)
    whole = detector.detect(image)
    in_parts(monkeypatch)
    same(detector.detect(image), whole)
    monkeypatch.setattr("whet.corrections.effects.AT_ONCE", 7)
    monkeypatch.setattr("whet.models.channels.tree_model.AT_ONCE", 1)
    same(detector.detect(image), whole)


def test_each_cell_of_a_part_is_that_of_the_whole(rng):
    pyramid = Pyramid.from_image(colourful((61, 83), rng), (24, 20), grid=GRID)
    for level in pyramid.levels[:2]:
        cells, pixels = level_cells(level), (level.source or level).pixels
        _, n_rows, n_columns = cells.shape
        for _ in range(20):
            (top, bottom), (left, right) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in (n_rows, n_columns))
            part = part_of_level(level, pixels, range(int(top), int(bottom)), range(int(left), int(right)))
            y, x = top - part.row, left - part.column
            cut = part.cells[:, y : y + bottom - top, x : x + right - left]
            assert np.array_equal(cut, cells[:, top:bottom, left:right])


@pytest.mark.parametrize("options", [{}, {"fast": True}, {"fast": False}, {"step": 2}, {"min_size": 8}])
def test_a_cascade_finds_the_same_in_parts(monkeypatch, options):
    finder, image = bull_finder(), bull_scene()
    finder.learn(image, finder.detect(image).boxes[2:3], False)
    whole = finder.detect(image, **options)
    monkeypatch.setattr(cascade_scan, "MOST_COLUMNS", 34)
    monkeypatch.setattr(cascade_scan, "BAND", 16)
    monkeypatch.setattr(cascade_scan, "WINDOWS_AT_ONCE", 64)
    monkeypatch.setattr(cascade_scan, "MOST_PATCHES", 1)
    same(finder.detect(image, **options), whole)
    in_parts(monkeypatch)
    same(finder.detect(image, **options), whole)


@pytest.mark.slow
def test_the_limit_decides_between_whole_and_parts(rng):
    detector, image = random_detector(), colourful((1200, 1400), rng)
    whole = detector.detect(image, step=4)
    pyramid = detector.only.pyramid(image, replace(whet.detector.shape.DEFAULTS, threads=1, max_memory=120_000_000))
    assert all(level.is_in_parts for level in pyramid.levels)
    same(detector.detect(image, threads=1, step=4, max_memory=120_000_000), whole)
    with pytest.raises(ImageMemoryError, match="max_memory"):
        detector.detect(image, max_memory=1_000_000)


def test_memory_is_known_before_anything_is_allocated():
    """Shapes only: the image is a view that takes no memory."""
    image = np.broadcast_to(np.uint8(0), (40_000, 40_000, 3))
    with pytest.raises(ImageMemoryError):
        Pyramid.from_image(image, (32, 32), grid=GRID, max_memory=10**9)
    pyramid = Pyramid.from_image(image, (32, 32), grid=GRID)
    assert all(level.is_in_parts for level in pyramid.levels)  # kernels count in 32 bits, which this exceeds


@pytest.mark.parametrize("step", [1, 2, 3, 10])
def test_the_integrals_of_a_band_fit_whatever_the_step(step):
    cascade = whet.load("face").model.cascade
    for columns in (30, 1000):
        runnable = cascade_scan._compiled_for(cascade, 3_300_000, columns, step)
        layout, copies = runnable.layout, 2 if step > 2 else 1
        rows = (3_300_000 - cascade.window[0]) // step + 1
        for band, _ in cascade_scan._bands(rows, columns // step + 1, cascade_scan._most_rows(runnable)):
            n = (band.stop - band.start) * step + cascade.window[0]
            least = cascade_scan.BAND * step + cascade.window[0]
            assert copies * 4 * n * layout.channels * layout.line <= cascade_scan.MOST_INTEGRALS or n <= least


def test_a_kernel_gets_no_place_beyond_32_bits():
    """A level of 8,000 x 8,000 cells has more than 2^31 of them in 40 channels."""
    model = random_detector().base.model
    from whet.models.channels.tree_model import _compiled

    with pytest.raises(ImageMemoryError):
        _compiled(model, model.votes, 8000, 8000)


@pytest.mark.parametrize("shape", [(7000, 8000), (1, 10**7), (9000, 9000)])
def test_enlargement_is_bounded_by_the_pixels_that_it_makes(shape):
    for scale in level_scales(shape, (24, 24), 1.2, min_size=6, padding=16):
        assert scale >= 1 or shape[0] * shape[1] / scale**2 <= pyramids.MOST_ENLARGED
    assert min(level_scales((500, 500), (24, 24), 1.2, min_size=6)) < 0.3


def test_more_windows_than_memory_holds_are_an_error(rng):
    image = colourful((300, 340), rng)
    everything = accepting(random_detector(), everything=True)
    with pytest.raises(ImageMemoryError, match="windows"):
        everything.detect(image, max_memory=62_000_000, threads=1, scale_factor=1.1)
    from tests.cascades import model_of, random_cascade

    cascade = model_of(random_cascade(["haar"], (12, 12), [3], rng))
    votes = cascade.votes.unlimited
    pyramid = Pyramid.from_image(image[:, :, 0], (12, 12), max_memory=5_000_000)
    with pytest.raises(ImageMemoryError, match="windows"):
        cascade.scan(replace(pyramid, most_windows=1000), votes)


@pytest.mark.slow
def test_an_image_that_does_not_fit_is_skipped_and_the_next_one_is_processed(tmp_path):
    Image.fromarray(bull_scene()).save(tmp_path / "b.png")
    Image.new("L", (10**4, 9 * 10**3)).save(tmp_path / "a.png")
    bull_finder().save(tmp_path / "bull.whet")
    command = [sys.executable, "-m", "whet", "detect", "bull.whet", "a.png", "b.png", "--max-memory", "100"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert "a.png" in done.stderr
    assert "max_memory" in done.stderr
    assert "b.png" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_machine_without_memory_is_a_named_error(monkeypatch):
    finder = bull_finder()

    def fail(*_, **__):
        raise MemoryError("Unable to allocate 20 GiB")

    monkeypatch.setattr(Pyramid, "from_image", fail)
    with pytest.raises(ImageMemoryError, match="20 GiB"):
        finder.detect(bull_scene())


def test_a_row_of_a_hundred_million_pixels_is_refused(tmp_path):
    write_black(tmp_path / "thin.png", (1, 10**8), 1)
    with pytest.raises(UnreadableImageError, match="side"):
        as_grey(tmp_path / "thin.png")
    with pytest.raises(UnreadableImageError, match="side"):
        as_grey(np.zeros((1, 10**8), np.uint8))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK", "LA", "L", "I;16", "F", "1"])
def test_large_images_are_converted_in_parts_to_the_same_pixels(monkeypatch, tmp_path, mode, rng):
    image = Image.fromarray(rng.integers(0, 256, (50, 70, 3), dtype=np.uint8))
    image = image.convert("L").convert("F").point(lambda v: v / 256) if mode == "F" else image
    image = Image.fromarray(rng.integers(0, 2**16, (50, 70), dtype=np.uint16)) if mode == "I;16" else image
    image.convert(mode).save(tmp_path / "a.tif")
    whole = [read(tmp_path / "a.tif") for read in (as_array, as_grey)]
    for pixels in (64, 200):
        monkeypatch.setattr("whet.io.image_files.CONVERTED_AT_ONCE", pixels)
        for one, read in zip(whole, (as_array, as_grey), strict=True):
            assert np.array_equal(read(tmp_path / "a.tif"), one)


def test_large_images_are_resized_colour_by_colour_to_the_same_pixels(monkeypatch, rng):
    image = colourful((97, 131), rng)
    shapes = [(80, 109), (33, 44), (150, 200), (9, 11)]
    whole = [pyramids.resized(image, shape) for shape in shapes]
    monkeypatch.setattr(pyramids, "MOST_AT_ONCE", 1)
    for shape, one in zip(shapes, whole, strict=True):
        assert np.array_equal(pyramids.resized(image, shape), one)


SCAN = """
import resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import whet
from whet.errors import ImageMemoryError, UnreadableImageError
detector = whet.load(sys.argv[1])
try:
    found = len(detector.detect(sys.argv[2], threads=2))
except UnreadableImageError as error:
    found = type(error).__name__
# Not that of `getrusage`, which begins with what the parent takes.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(found, int(peak) * 1024 // 1_000_000)
"""


def write_black(path, shape, colours):
    """A black PNG file (height, width), without taking the memory of its pixels."""
    (height, width), packer = shape, zlib.compressobj(9)
    left, packed = height * (width * colours + 1), []
    while left > 0:
        packed.append(packer.compress(bytes(min(left, 1 << 24))))
        left -= 1 << 24
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if colours == 1 else 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", b"".join([*packed, packer.flush()])), (b"IEND", b"")
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def peak_of(model, image) -> tuple[str, int]:
    """What a scan with two threads finds, and its peak memory in megabytes."""
    command = [sys.executable, "-W", "ignore", "-c", SCAN, str(model), str(image)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found, peak = done.stdout.split()
    return found, int(peak)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Detectors of both families, and one that accepts everything and has a correction."""
    folder = tmp_path_factory.mktemp("models")
    accepting(random_detector(window=(32, 32)), everything=False).save(folder / "none.whet")
    everything = accepting(random_detector(window=(32, 32)), everything=True)
    noise = colourful((90, 110), np.random.default_rng(3))
    everything.add(everything.new_records(noise, [[30, 30, 60, 60]], False))
    everything.save(folder / "all.whet")
    return {"face": "face", "none": folder / "none.whet", "all": folder / "all.whet"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        *(("face", (1, 10**8)), ("all", (10**8, 1))),
        *(("face", (16, 6 * 10**6)), ("all", (16, 6 * 10**6)), ("none", (10**4, 10**4))),
    ],
)
def test_peak_memory_of_hostile_shapes(tmp_path, models, model, shape):
    """One of each kind; a scan of a hundred megapixels takes most of a minute."""
    path, colours = tmp_path / "hostile.png", 3
    write_black(path, shape, colours)
    assert path.stat().st_size < 1_000_000
    found, peak = peak_of(models[model], path)
    print(model, shape, colours, found, peak)
    assert peak < MOST_PEAK
    if found.isdigit():
        assert peak <= formula(whet.load(models[model]), shape)


def formula(detector, shape):
    """Megabytes of a scan with two threads that accepts nothing, as docs/guarantees.md has it."""
    needed = []

    def note(memory, max_memory):
        whole = memory.can_be_whole and memory.whole <= 0.75 * max_memory
        needed.append(memory.whole if whole else memory.in_parts)
        raise ImageMemoryError

    is_colour = detector.model.grid.is_colour
    image = np.broadcast_to(np.uint8(0), (*shape, 3) if is_colour else shape)
    with pytest.MonkeyPatch.context() as patch, suppress(ImageMemoryError):
        patch.setattr(scan_memory.ScanMemory, "is_in_parts", note)
        detector.only.pyramid(image, replace(whet.detector.shape.DEFAULTS, threads=2))
    bands = 0 if is_colour else 2 * cascade_scan.MOST_INTEGRALS
    decoding = (7 if is_colour else 4) * shape[0] * shape[1]
    return 200 + max(needed[0] + bands, decoding) / 1e6


@pytest.mark.slow
def test_peak_memory_of_a_model_that_accepts_everything_and_has_a_correction(tmp_path, models):
    Image.fromarray(colourful((512, 512), np.random.default_rng(5))).save(tmp_path / "noise.png")
    found, peak = peak_of(models["all"], tmp_path / "noise.png")
    assert found.isdigit()
    assert peak < MOST_PEAK
