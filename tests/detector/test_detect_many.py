"""Many images at once, and scans from coarse to fine, with the bundled face detector."""

import numpy as np
import pytest
from PIL import Image

import whet
from whet.errors import UnreadableImageError

data = pytest.importorskip("skimage.data")


@pytest.fixture(scope="module")
def detector():
    return whet.load("face")


@pytest.fixture(scope="module")
def photograph():
    return data.astronaut()[:300, 80:400]


def test_many_images_give_what_single_ones_give_in_their_order(detector, photograph, tmp_path):
    Image.fromarray(photograph).save(tmp_path / "one.png")
    images = [photograph, tmp_path / "one.png", np.zeros((40, 40), np.uint8), photograph[::2, ::2]]
    for threads in (1, 2):
        found = list(detector.detect_many(iter(images), min_size=30, threads=threads))
        for ours, image in zip(found, images, strict=True):
            alone = detector.detect(image, min_size=30)
            assert np.array_equal(ours.boxes, alone.boxes)
            assert np.array_equal(ours.scores, alone.scores)


def test_images_are_taken_when_they_are_needed(detector):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield np.zeros((30, 30), np.uint8)

    found = detector.detect_many(endless(), threads=2)
    assert [len(next(found)) for _ in range(3)] == [0, 0, 0]
    assert len(taken) < 10
    found.close()


def test_a_file_that_cannot_be_read_is_an_error_at_its_place(detector, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    found = detector.detect_many([np.zeros((30, 30), np.uint8), tmp_path / "broken.png"], threads=1)
    assert len(next(found)) == 0
    with pytest.raises(UnreadableImageError, match="broken"):
        next(found)


def test_a_fast_scan_finds_the_same_faces_with_windows_of_the_full_scan(detector, photograph):
    full, fast = (detector.detect(photograph, min_size=30, fast=fast) for fast in (False, True))
    assert len(full) == len(fast) >= 1
    assert np.abs(full.boxes - fast.boxes).max() < 1
    every = set(zip(*(full.windows.index.scale, full.windows.index.y, full.windows.index.x), strict=True))
    some = set(zip(*(fast.windows.index.scale, fast.windows.index.y, fast.windows.index.x), strict=True))
    assert some <= every
    assert len(some) > 0.9 * len(every)


def test_a_correction_holds_in_a_fast_scan():
    detector, image = whet.load("face"), data.astronaut()
    found = detector.detect(image, min_size=50)
    assert len(found) == 2
    detector.learn(image, found[1].boxes, False, min_size=50)
    for fast in (False, True):
        left = detector.detect(image, min_size=50, fast=fast)
        assert np.abs(left.boxes - found[0].boxes).max() < 2
