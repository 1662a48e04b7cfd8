"""Exported cascades: OpenCV and whet accept the same windows."""

import numpy as np
import pytest
from tests.cascades import random_cascade, textured, windows_of

from whet.errors import CannotExportError
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.integral import IntegralStack
from whet.opencv import CascadeClassifier
from whet.opencv.xml_writer import write_opencv

WINDOW = (16, 18)


def made(kind, soft, seed, sizes=(5, 20, 60)):
    """A cascade whose thresholds are sums that windows of the image really have: equality is put to the test."""
    rng = np.random.default_rng(seed)
    image = textured((60, 70), rng)
    like = windows_of(image, WINDOW, 3)[0]
    return random_cascade([kind] * len(sizes), WINDOW, sizes, rng, soft=soft, passing=0.7, like=like), image


def classifiers(path):
    """Ours, and OpenCV's where it is installed."""
    yield CascadeClassifier(path, threads=1)
    cv2 = pytest.importorskip("cv2")
    if hasattr(cv2, "CascadeClassifier"):
        yield cv2.CascadeClassifier(str(path))


def accepts(classifier, patches):
    """Whether each patch is accepted: an image of one window has no second scale, no step and no skipped neighbour."""
    assert not classifier.empty()
    return np.array([len(classifier.detectMultiScale(patch, 1.1, 0)) == 1 for patch in np.ascontiguousarray(patches)])


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["haar", "lbp", "rectangle leaves", "lbp leaves"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_hard_cascade_decides_alike(kind, seed, exact, tmp_path):
    cascade, image = made(kind, False, seed)
    exported = write_opencv(cascade, tmp_path / "c.xml", exact=exact)
    assert exported.stumps == 85 * (1 + exact)
    assert exported.closest < (1e-12 if exact else 1e-6)
    patches = windows_of(image, WINDOW)[0]
    expected = cascade.accepts(patches)
    assert 20 < expected.sum() < len(patches) / 2
    has_contrast = IntegralStack.from_patches(patches).has_contrast
    for classifier in classifiers(tmp_path / "c.xml"):
        found = accepts(classifier, patches)
        assert np.array_equal(found[has_contrast], expected[has_contrast])
        assert "lbp" in kind or np.array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["haar", "lbp", "rectangle leaves", "lbp leaves"])
def test_a_soft_cascade_keeps_its_windows_and_accepts_more_the_fewer_exits_are_kept(kind, tmp_path):
    cascade, image = made(kind, True, 3)
    patches = windows_of(image, WINDOW)[0]
    patches = patches[IntegralStack.from_patches(patches).has_contrast]
    expected, found, stumps = cascade.accepts(patches), {}, {}
    for early_exits in ("all", "doubling", "none"):
        exported = write_opencv(cascade, tmp_path / f"{early_exits}.xml", early_exits=early_exits)
        stumps[early_exits] = exported.stumps
        assert ("early exits" in " ".join(exported.differences)) == (early_exits != "all")
        ours, *theirs = classifiers(tmp_path / f"{early_exits}.xml")
        found[early_exits] = accepts(ours, patches)
        assert all(np.array_equal(accepts(other, patches), found[early_exits]) for other in theirs)
    assert np.array_equal(found["all"], expected)
    assert not (found["all"] & ~found["doubling"]).any()
    assert not (found["doubling"] & ~found["none"]).any()
    assert found["doubling"].sum() < found["none"].sum()
    assert stumps["none"] <= stumps["doubling"] <= 3 * stumps["none"] < stumps["all"]


def test_sums_of_the_last_stage_are_the_scores(tmp_path):
    cascade, image = made("haar", False, 4)
    write_opencv(cascade, tmp_path / "c.xml", exact=True)
    height, width = WINDOW
    boxes, _, weights = CascadeClassifier(tmp_path / "c.xml").detectMultiScale3(
        image, 1.1, 0, minSize=(width, height), maxSize=(width, height), outputRejectLevels=True
    )
    assert len(boxes) > 5
    for (x, y, _, _), weight in zip(boxes.tolist(), weights, strict=True):
        (margin,) = cascade.stages[-1].score(image[None, y : y + height, x : x + width])
        assert weight == pytest.approx(margin, abs=1e-9)


def with_stage(cascade, **changes):
    stage = cascade.stages[0]
    parts = {"features": stage.features, "weak": stage.weak, "coef": stage.coef, "threshold": stage.threshold} | changes
    return Cascade(cascade.window, (Stage(**parts),))


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e-3, 1.0, 1e9, 1e25])
@pytest.mark.parametrize("zero", [False, True])
def test_weights_of_any_size(scale, zero, tmp_path):
    """Float32 has its limits, and OpenCV its margin of 1e-5; scaling by a power of two avoids both."""
    cascade, image = made("haar", False, 6, sizes=(12,))
    stage = cascade.stages[0]
    scaled = with_stage(cascade, coef=stage.coef * scale, threshold=0.0 if zero else stage.threshold * scale)
    write_opencv(scaled, tmp_path / "c.xml")
    patches = windows_of(image, WINDOW, 2)[0]
    for classifier in classifiers(tmp_path / "c.xml"):
        assert np.array_equal(accepts(classifier, patches), scaled.accepts(patches))


def test_what_opencv_has_no_words_for(tmp_path):
    haar, _ = made("haar", False, 0)
    lbp, _ = made("lbp", False, 0)
    leaves, _ = made("rectangle leaves", False, 0)
    for other in (haar, leaves):
        with pytest.raises(CannotExportError, match=r"Haar and LBP stages; .*either Haar stumps or LBP stumps"):
            write_opencv(Cascade(WINDOW, other.stages + lbp.stages), tmp_path / "c.xml")
    with pytest.raises(CannotExportError, match="min_sigma"):
        write_opencv(Cascade(WINDOW, haar.stages, min_sigma=5.0), tmp_path / "c.xml")
    assert not (tmp_path / "c.xml").exists()
