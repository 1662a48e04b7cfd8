"""Positives are the windows that a scan would see; copies of an object stay together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.io.annotations.sets import image

from whet.errors import TrainingDataError
from whet.images.boxes import BoxOffset
from whet.images.pyramid import Pyramid
from whet.io.annotations.annotation import Annotations
from whet.parallel.workers import Threads
from whet.training.loop import training_of
from whet.training.preparation import split_objects
from whet.training.samples import Jitter, asymmetry, copies_for, cut_window, is_safe_to_mirror, moved_inside
from whet.training.samples import cut_positives as cut_objects
from whet.training.windows import WindowChoice, grey_window

WINDOW = (16, 36)
CHOICE = WindowChoice(*WINDOW, BoxOffset(), 1, 2.25, 2.25, 2.25, holds=True)


def cut_positives(annotations, choice, *, mirror=False, **options):
    return cut_objects(training_of("haar"), annotations, choice, mirror=mirror, **options)


def smooth(height, width, rng):
    coarse = Image.fromarray(rng.integers(0, 256, (height // 4, width // 4), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


@given(st.integers(60, 130), st.integers(60, 170), st.integers(0, 2**32 - 1))
def test_what_is_cut_where_a_scan_has_a_window_is_that_window(height, width, seed):
    rng = np.random.default_rng(seed)
    grey = rng.integers(0, 256, (height, width), dtype=np.uint8)
    for level in Pyramid.from_image(grey, WINDOW).levels:
        rows, columns = (side - length + 1 for side, length in zip(level.image.shape, WINDOW, strict=True))
        # Corners of the level too, where the filter ends with the image.
        for y, x in [(0, 0), (rows - 1, columns - 1), (rng.integers(rows), rng.integers(columns))]:
            box = level.boxes(np.array([y]), np.array([x]), WINDOW)[0]
            seen = level.image[y : y + WINDOW[0], x : x + WINDOW[1]].astype(int)
            # Pillow keeps the box in 32 bits, and rounds after each of two passes.
            assert np.abs(cut_window(grey, box, WINDOW) - seen).max() <= 2


def test_an_object_is_never_squeezed():
    """A round blob in a box of any shape is as high as it is wide in the window."""
    y, x = np.mgrid[:200, :200]
    blob = (255 * ((y - 100) ** 2 + (x - 100) ** 2 < 30**2)).astype(np.uint8)
    for box in ([65, 65, 135, 135], [40, 65, 160, 135], [65, 30, 135, 170]):
        (window,) = CHOICE.windows(np.array([box], dtype=float))
        patch = cut_window(blob, window, WINDOW) > 127
        assert abs(patch.any(axis=0).sum() - patch.any(axis=1).sum()) <= 1


def test_beyond_the_image_its_edge_is_repeated():
    grey = np.tile(np.arange(0, 200, 5, dtype=np.uint8), (40, 1))
    patch = cut_window(grey, np.array([-20.0, 0.0, 20.0, 20.0]), (20, 40))
    assert (patch[:, :19] == 0).all()
    assert (np.diff(patch[0, 20:].astype(int)) > 0).all()


@given(st.lists(st.floats(-100, 300), min_size=2, max_size=2), st.lists(st.floats(1, 90), min_size=2, max_size=2))
def test_a_window_that_fits_is_moved_inside(corner, size):
    window = moved_inside(np.array([*corner, corner[0] + size[0], corner[1] + size[1]]), (100, 120))
    assert (window[:2] >= 0).all()
    assert window[2] <= 120 + 1e-9
    assert window[3] <= 100 + 1e-9
    assert np.allclose(window[2:] - window[:2], size)


def test_a_turned_window_is_the_window_of_the_turned_image(rng):
    grey = smooth(160, 160, rng)
    turned = np.asarray(Image.fromarray(grey).rotate(10, Image.Resampling.BICUBIC))
    box = np.array([44.0, 64.0, 116.0, 96.0])
    ours, theirs = cut_window(grey, box, WINDOW, 10.0).astype(int), cut_window(turned, box, WINDOW).astype(int)
    assert np.abs(ours - theirs).mean() < 3
    assert np.abs(cut_window(grey, box, WINDOW).astype(int) - theirs).mean() > 9


@pytest.fixture
def cars(tmp_path, rng):
    images = []
    for number in range(6):
        grey = smooth(120, 200, rng)
        path = tmp_path / f"{number}.png"
        Image.fromarray(grey).save(path)
        boxes = [[10, 10, 82, 42], [100, 60, 180, 95], [150, 90, 199, 119]]
        images.append(image(path, boxes, ["car"] * 3, [False, False, True], (120, 200)))
    return Annotations(tuple(images), ("car",))


def test_the_first_copy_is_the_object_and_the_ignored_are_left_out(cars):
    cut = cut_positives(cars, CHOICE, copies=4, seed=3)
    assert cut.windows.shape == (6 * 2 * 4, *WINDOW)
    assert cut.objects.tolist() == np.repeat(np.arange(12), 4).tolist()
    grey = np.asarray(Image.open(cars.images[1].path))
    box = CHOICE.windows(cars.images[1].objects)[1]
    assert (cut.windows[12] == cut_window(grey, moved_inside(box, grey.shape), WINDOW)).all()
    assert len({patch.tobytes() for patch in cut.windows}) == len(cut)
    assert str(cut) == "48 positives of 12 objects"


def test_what_an_object_becomes_depends_on_seed_and_number_alone(cars):
    first, again = (cut_positives(cars, CHOICE, copies=3, seed=1, workers=Threads(threads)) for threads in (1, 2))
    assert (first.windows == again.windows).all()
    other = cut_positives(cars, CHOICE, copies=3, seed=2)
    assert (first.windows[::3] == other.windows[::3]).all()
    assert (first.windows[1] != other.windows[1]).any()
    fewer = Annotations(cars.images[:2], cars.classes)
    assert (cut_positives(fewer, CHOICE, copies=3, seed=1).windows == first.windows[:12]).all()


def test_jitter_stays_within_its_bounds(rng):
    jitter, window = Jitter(0.1, 0.2, 5), np.array([10.0, 20.0, 110.0, 60.0])
    drawn = [jitter.draw(window, rng) for _ in range(500)]
    boxes, angles = np.array([box for box, _ in drawn]), np.array([angle for _, angle in drawn])
    size = boxes[:, 2:] - boxes[:, :2]
    assert (np.abs((boxes[:, :2] + boxes[:, 2:]) / 2 - [60, 40]) <= np.array([10, 4]) + 1e-9).all()
    by_shorter = np.array([jitter.draw(window, rng, by_shorter=True)[0] for _ in range(100)])
    assert (np.abs((by_shorter[:, :2] + by_shorter[:, 2:]) / 2 - [60, 40]) <= 4 + 1e-9).all()
    assert ((size <= np.array([120, 48]) + 1e-9) & (size >= np.array([100, 40]) / 1.2 - 1e-9)).all()
    assert np.allclose(size[:, 0] / size[:, 1], 2.5)
    assert np.abs(angles).max() <= 5
    assert np.abs(angles).max() > 4
    with pytest.raises(ValueError, match="a rotation up to 45"):
        Jitter(rotation=90)


def test_mirror_images_are_of_the_same_object(cars):
    cut = cut_positives(cars, CHOICE, copies=2, mirror=True)
    assert cut.objects.tolist() == np.repeat(np.arange(12), 4).tolist()
    assert (cut.windows[0] == cut.windows[1][:, ::-1]).all()
    assert str(cut) == "48 positives of 12 objects, mirror images included"


def test_no_object_is_in_training_and_in_validation(cars):
    cut = cut_positives(cars, CHOICE, copies=5, mirror=True)
    for seed in range(5):
        train, check = split_objects(cut.objects, 0.25, seed)
        assert sorted([*train, *check]) == list(range(len(cut)))
        assert len(check)
        assert not set(cut.objects[train].tolist()) & set(cut.objects[check].tolist())


def test_left_and_right_that_differ_are_not_mirrored(rng):
    one_way = np.clip(rng.normal(100, 20, (60, 16, 24)) + 60 * (np.arange(24) > 11), 0, 255).astype(np.uint8)
    both_ways = np.where(np.arange(60)[:, None, None] % 2, one_way, one_way[:, :, ::-1])
    assert asymmetry(one_way) > 0.5
    assert not is_safe_to_mirror(one_way)
    assert abs(asymmetry(both_ways)) < 0.05
    assert is_safe_to_mirror(both_ways)
    assert not is_safe_to_mirror(both_ways[:19])  # too few to tell
    assert asymmetry(np.zeros((30, 8, 8), dtype=np.uint8)) == 0


def test_digits_are_not_mirrored_but_for_the_one_that_looks_the_same():
    from sklearn.datasets import load_digits

    digits = load_digits()
    shares = [asymmetry((16 * digits.images[digits.target == k]).clip(0, 255).astype(np.uint8)) for k in range(10)]
    assert min(shares[2:8]) > 0.25
    assert 0.6 < max(shares) < 0.8
    assert shares[8] < 0.1


def test_faces_may_be_mirrored():
    from experiments import datasets

    folder = datasets.find("faces_lfw")
    if folder is None:
        pytest.skip("the faces of LFW are not on this machine: set WHET_DATA")
    frames = [np.asarray(Image.open(path).convert("L")) for path in sorted(folder.glob("*.jpg"))[:200]]
    faces = np.array([cut_window(frame, np.array([24.0, 23.0, 137.0, 136.0]), (24, 24)) for frame in frames])
    assert abs(asymmetry(faces)) < 0.01


def test_objects_that_cannot_be_cut_are_reported(cars, tmp_path):
    tiny = image(cars.images[0].path, [[10, 10, 20, 14]], shape=(120, 200))
    broken = tmp_path / "broken.png"
    broken.write_bytes(cars.images[0].path.read_bytes()[:200])
    unreadable = image(broken, [[10, 10, 82, 42]], shape=(120, 200))
    cut = cut_positives(Annotations((*cars.images, tiny, unreadable), ("car",)), CHOICE, copies=1)
    assert len(cut) == 12
    assert "an object of 10 x 4 pixels, skipped: smaller than half of the 36 x 16 window" in cut.problems[0].what
    assert "cannot be read as an image" in cut.problems[1].what
    with pytest.raises(TrainingDataError, match="no object could be cut from the images"):
        cut_positives(Annotations((tiny,), ("car",)), CHOICE)
    with pytest.raises(TrainingDataError, match="contain no boxes"):
        cut_positives(Annotations((image(broken),), ("car",)), CHOICE)


def test_few_objects_are_stretched_and_many_are_not():
    assert [copies_for(n) for n in (1, 100, 101, 999, 1000, 9999)] == [12, 10, 10, 2, 1, 1]


def test_window_and_positives_of_crops_of_many_sizes(tmp_path, rng):
    from whet.io.annotations.formats import read_annotations

    for number in range(8):
        Image.fromarray(smooth(40 + 4 * number, 80 + 16 * number, rng)).save(tmp_path / f"{number}.png")
    crops = read_annotations(tmp_path)
    choice = grey_window(crops.boxes, margin=0.0)
    assert cut_positives(crops, choice, copies=2).windows.shape == (16, *choice.window)
