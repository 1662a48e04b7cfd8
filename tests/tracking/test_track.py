import numpy as np
import pytest
from tests.cascades import model_of, random_cascade, textured, windows_of
from tests.detectors import BULL, bull_finder, bull_scene

from whet.images.boxes import box_iou
from whet.images.pyramid import Pyramid
from whet.tracking.tracker import MotionPrior, scan_near, track

WINDOW = (9, 9)


def near(cascade, image, box, reach, steps):
    pyramid = Pyramid.from_image(image, cascade.window)
    return scan_near(model_of(cascade), pyramid, box, reach=reach, max_ratio=1.2**steps)


def tracked(corrected, image, last=None, **prior):
    return track(corrected, Pyramid.from_image(image, corrected.model.window), last, MotionPrior(**prior))


def later_margins(cascade, patch):
    return sum(float(stage.score(patch)[0]) for stage in cascade.stages[cascade.first_scoring :])


@pytest.mark.parametrize("soft", [False, True])
def test_near_windows_have_the_margins_of_the_later_stages_rejected_or_not(soft, rng):
    like = windows_of(textured((60, 60), rng), WINDOW, 2)[0]
    cascade = random_cascade(("haar", "lbp", "haar"), WINDOW, (6, 7, 8), rng, like=like, soft=soft)
    image, box = textured((60, 70), rng), np.array([20.0, 20.0, 32.0, 32.0])
    found = near(cascade, image, box, reach=0.4, steps=1.0)
    assert len(found) > 20
    assert (found.scores < 0).any()
    for i in range(0, len(found), 7):
        patch = Pyramid.from_image(image, WINDOW).patches(found.index.take(slice(i, i + 1)))
        assert found.scores[i] == pytest.approx(later_margins(cascade, patch), abs=1e-12)


def test_near_windows_are_near(rng):
    like = windows_of(textured((60, 60), rng), WINDOW, 2)[0]
    cascade = random_cascade(("haar",), WINDOW, (6,), rng, like=like)
    box = np.array([20.0, 20.0, 32.0, 32.0])
    found = near(cascade, textured((60, 70), rng), box, reach=0.4, steps=1.0)
    centres, sides = (found.boxes[:, :2] + found.boxes[:, 2:]) / 2, found.boxes[:, 2] - found.boxes[:, 0]
    assert (abs(centres - 26) <= 0.4 * 12 + 2).all()  # to the next pixel of the level
    assert (abs(np.log(sides / 12)) <= np.log(1.2) + 0.05).all()


def test_a_box_at_the_edge_has_windows_within_the_image(rng):
    like = windows_of(textured((60, 60), rng), WINDOW, 2)[0]
    cascade = random_cascade(("haar",), WINDOW, (6,), rng, like=like)
    found = near(cascade, textured((60, 70), rng), np.array([-5.0, -5.0, 7.0, 7.0]), reach=0.5, steps=1)
    assert (found.boxes[:, :2] >= 0).all()


def test_the_tracker_stays_with_its_object_where_another_scores_higher():
    """The larger bull is at (120, 70); a track that began at the small one stays there."""
    corrected, image = bull_finder().only.corrected, bull_scene()
    best = tracked(corrected, image)
    other = best.box[None] if box_iou(best.box[None], BULL)[0, 0] < 0.5 else None
    assert box_iou(tracked(corrected, image, BULL[0]).box[None], BULL)[0, 0] > 0.5
    free = tracked(corrected, image, BULL[0], most=0.0)  # no distance costs anything
    assert other is None or box_iou(free.box[None], other)[0, 0] > 0.5


def test_nothing_ever_detected_is_no_track():
    assert tracked(bull_finder().only.corrected, np.full((60, 60), 80, np.uint8)) is None


def test_an_object_that_is_no_longer_accepted_is_still_tracked():
    corrected, image = bull_finder().only.corrected, bull_scene()
    first = tracked(corrected, image)
    assert first.accepted
    faint = (0.12 * (image.astype(float) - 128) + 128).astype(np.uint8)
    faint = faint + np.random.default_rng(0).integers(0, 12, faint.shape).astype(np.uint8)
    second = tracked(corrected, faint, first.box)
    if second is not None:  # contrast may be too little for any window
        assert box_iou(first.box[None], second.box[None])[0, 0] > 0.3
