"""`whet.opencv` finds what OpenCV finds, window by window, box by box and to the last bit of every sum."""

from pathlib import Path

import numpy as np
import pytest
from tests.cascades import scene, textured
from tests.opencv_files import haar_file, lbp_file, old_file

from whet.opencv import CascadeClassifier

cv2 = pytest.importorskip("cv2")

pytestmark = pytest.mark.skipif(not hasattr(cv2, "CascadeClassifier"), reason="this OpenCV has no cascades")

BUNDLED = sorted(Path(cv2.data.haarcascades).glob("*.xml"))


@pytest.fixture(autouse=True)
def one_thread():
    """OpenCV's order of windows is that of its threads; on one thread it is by scale, row and column."""
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    yield
    cv2.setNumThreads(threads)


def both(path):
    ours, theirs = CascadeClassifier(path), cv2.CascadeClassifier(str(path))
    assert not ours.empty()
    assert not theirs.empty()
    return ours, theirs


def same(ours, theirs):
    if isinstance(ours, tuple) and len(ours) and isinstance(theirs, tuple):
        return all(map(same, ours, theirs))
    return (
        type(ours) is type(theirs)
        and np.array_equal(ours, theirs)
        and getattr(ours, "dtype", 0) == getattr(theirs, "dtype", 0)
    )


def assert_alike(ours, theirs, image, **options):
    assert same(ours.detectMultiScale(image, **options), theirs.detectMultiScale(image, **options))
    assert same(ours.detectMultiScale2(image, **options), theirs.detectMultiScale2(image, **options))
    if len(ours.cascade) == 1:
        return  # with one stage, OpenCV's detectMultiScale3 reports windows that it did not even look at
    options |= {"outputRejectLevels": True}
    assert same(ours.detectMultiScale3(image, **options), theirs.detectMultiScale3(image, **options))


def written(tmp_path, text):
    path = tmp_path / "cascade.xml"
    path.write_text(text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_bundled_cascades(path, rng):
    ours, theirs = both(path)
    assert ours.getOriginalWindowSize() == theirs.getOriginalWindowSize()
    assert ours.getFeatureType() == theirs.getFeatureType()
    assert ours.isOldFormatCascade() == theirs.isOldFormatCascade()
    for image in (textured((150, 201), rng), scene((120, 160), [(20, 30, 60)], rng)):
        assert_alike(ours, theirs, image, minNeighbors=0)
        assert_alike(ours, theirs, image)


FILES = {
    "stumps": lambda rng: haar_file(rng, (20, 24), [3, 8, 15]),
    "trees": lambda rng: haar_file(rng, (20, 20), [3, 8, 15], sizes=(1, 2, 3, 5)),
    "large trees": lambda rng: haar_file(rng, (20, 20), [3, 8], sizes=(9, 20)),
    "tilted": lambda rng: haar_file(rng, (24, 16), [3, 8, 15], sizes=(1, 2), tilted=True),
    "fractional weights": lambda rng: haar_file(rng, (18, 22), [3, 8, 15], fractional=True),
    "fractional tilted trees": lambda rng: haar_file(rng, (18, 22), [3, 8], sizes=(2, 3), tilted=True, fractional=True),
    "large window": lambda rng: haar_file(rng, (50, 60), [3, 8]),
    "lbp stumps": lambda rng: lbp_file(rng, (24, 20), [3, 8, 15]),
    "lbp trees": lambda rng: lbp_file(rng, (24, 24), [3, 8, 15], sizes=(1, 2, 3)),
    "lbp large trees": lambda rng: lbp_file(rng, (24, 24), [2, 3], sizes=(9,)),
    "old": lambda rng: old_file(rng, (16, 20), [2, 5, 9]),
    "one stage": lambda rng: haar_file(rng, (20, 20), [2], passing=0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_cascades_of_every_kind(name, tmp_path):
    n_found = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        ours, theirs = both(written(tmp_path, FILES[name](rng)))
        image = textured((71, 90 + seed), rng)
        n_found += len(ours.detectMultiScale(image, minNeighbors=0))
        assert_alike(ours, theirs, image, minNeighbors=0)
        assert_alike(ours, theirs, image)
    assert 100 < n_found < 10_000  # OpenCV takes minutes to group many more


def test_children_of_stumps_are_not_read(tmp_path, rng):
    text = haar_file(rng, (20, 20), [4, 4]).replace("<internalNodes>0 -1", "<internalNodes>-1 0")
    ours, theirs = both(written(tmp_path, text))
    assert_alike(ours, theirs, textured((60, 80), rng), minNeighbors=0)


def test_children_of_stumps_among_trees_are_read(tmp_path):
    rng = np.random.default_rng(2)
    text = haar_file(rng, (20, 20), [6, 6], sizes=(1, 2)).replace("<internalNodes>0 -1 ", "<internalNodes>-1 0 ")
    ours, theirs = both(written(tmp_path, text))
    assert_alike(ours, theirs, textured((60, 80), rng), minNeighbors=0)


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("faces") / "cascade.xml"
    path.write_text(haar_file(rng, (20, 20), [4, 9, 14], sizes=(1, 2), tilted=True))
    return path


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"scaleFactor": 1.01}, marks=pytest.mark.slow),
        {"scaleFactor": 1.3, "minNeighbors": 1},
        {"scaleFactor": 3.7, "minNeighbors": 5},
        {"minSize": (30, 30)},
        {"minSize": (30, 50)},
        {"maxSize": (40, 41)},
        {"maxSize": (0, 41)},
        {"minSize": (33, 33), "maxSize": (33, 33)},  # no scale gives 33: the nearest is taken
        {"minSize": (500, 500)},
        {"minSize": (20, 20), "maxSize": (20, 20), "minNeighbors": 0},
        {"minNeighbors": -1},
        {"minNeighbors": 2, "flags": 1 | 2 | 4 | 8},
        {"flags": 4, "minNeighbors": 1},
    ],
    ids=str,
)
def test_options(faces, options, rng):
    ours, theirs = both(faces)
    assert_alike(ours, theirs, textured((97, 131), rng), **options)


@pytest.mark.parametrize("shape", [(20, 20), (20, 90), (90, 21), (23, 52), (19, 100), (41, 41), (0, 0)])
def test_small_images(faces, shape, rng):
    ours, theirs = both(faces)
    image = rng.integers(0, 256, shape, dtype=np.uint8)
    assert_alike(ours, theirs, image, minNeighbors=0)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_colour(faces, channels, rng):
    ours, theirs = both(faces)
    image = np.stack([textured((70, 90), rng) for _ in range(channels)], axis=-1)
    assert_alike(ours, theirs, image, minNeighbors=0)
    assert_alike(ours, theirs, image[::-1, ::2], minNeighbors=1)


def test_the_number_of_threads_changes_nothing(faces, rng):
    image = textured((300, 220), rng)
    one = CascadeClassifier(faces, threads=1).detectMultiScale3(image, 1.1, 0, outputRejectLevels=True)
    many = CascadeClassifier(faces, threads=5).detectMultiScale3(image, 1.1, 0, outputRejectLevels=True)
    assert same(one, many)


def test_none_is_an_empty_image_as_in_opencv(faces):
    ours, theirs = both(faces)
    assert ours.detectMultiScale(None) == theirs.detectMultiScale(None) == ()
