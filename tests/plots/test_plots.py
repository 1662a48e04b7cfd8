import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import MissingExtraError
from whet.evaluation.evaluation import Mistake, evaluate_detections, sweep
from whet.images.detections import Detections
from whet.models.gslda.cascade import Stage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.weak_learners import Stumps
from whet.plots.drawing import (
    FALSE_POSITIVE,
    FOUND,
    GAP,
    LINE,
    MISSED,
    TILE,
    contact_sheet,
    draw_boxes,
    draw_caption,
    draw_detections,
    draw_evaluation,
    draw_tracked_frame,
    feature_sheet,
    save_image,
)
from whet.plots.figure import draw_precision_recall, draw_roc
from whet.tracking.tracker import Tracker


@pytest.fixture
def curve():
    return sweep([5.0, 4.0, 3.0, 2.0], [1, 0, 1, 0], n_truths=3, n_images=2)


@pytest.fixture
def panels(monkeypatch):
    """The axes of every figure that is saved."""
    from whet.plots import figure as curves

    seen = []

    def save(figure, path):
        seen.append(figure.axes[0])
        return path

    monkeypatch.setattr(curves, "save", save)
    return seen


def test_roc_has_the_points_of_the_curve(curve, panels, tmp_path):
    draw_roc({"ours": curve}, tmp_path / "roc.png")
    draw_roc({"ours": curve}, tmp_path / "roc.png", axis="log")
    (linear,), (log,) = (panel.lines for panel in panels)
    np.testing.assert_array_equal(linear.get_xdata(), [0, 0, 1, 1, 2])
    np.testing.assert_allclose(linear.get_ydata(), [0, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    np.testing.assert_array_equal(log.get_xdata(), [0.5, 0.5, 1, 1, 2])
    np.testing.assert_array_equal(log.get_ydata(), linear.get_ydata())
    assert panels[1].get_xscale() == "log"


def test_precision_and_recall_are_those_of_the_curve(curve, panels, tmp_path):
    draw_precision_recall({"ours": curve}, tmp_path / "pr.png")
    (line,) = panels[0].lines
    np.testing.assert_allclose(line.get_ydata(), curve.precision)
    assert line.get_label() == "ours (0.556)"


def test_curves_are_written_as_images(curve, tmp_path):
    for path in (
        draw_roc({"a": curve, "b": curve}, tmp_path / "roc.png"),
        draw_precision_recall({}, tmp_path / "p.png"),
    ):
        with Image.open(path) as opened:
            assert opened.width > 500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.png", "roc.png"]


def test_without_matplotlib_the_message_says_what_to_install(curve, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="pip install matplotlib"):
        draw_roc({"ours": curve}, tmp_path / "roc.png")


def test_right_false_and_missed_have_their_colours(tmp_path):
    image = np.full((60, 90), 100, dtype=np.uint8)
    right, false, missed = [5.0, 5.0, 25.0, 25.0], [30.0, 5.0, 50.0, 25.0], [60.0, 5.0, 80.0, 25.0]
    result = evaluate_detections([([right, false], [2.0, 1.0])], [([right, missed], None)]).images[0]
    drawn = draw_evaluation(image, result)
    assert [tuple(drawn[5, x]) for x in (10, 40, 70)] == [FOUND, FALSE_POSITIVE, MISSED]
    strict = draw_evaluation(image, result, threshold=1.5)
    assert tuple(strict[5, 40]) == (100, 100, 100)
    with Image.open(save_image(drawn, tmp_path / "drawn.png")) as opened:
        np.testing.assert_array_equal(np.asarray(opened), drawn)


def test_boxes_beyond_the_edge_and_without_area_are_drawn_as_far_as_they_go():
    image = np.zeros((20, 20), dtype=np.uint8)
    drawn = draw_boxes(image, np.array([[-5.0, -5.0, 10.0, 10.0], [3.0, 3.0, 3.0, 3.0]]), width=1)
    assert tuple(drawn[9, 5]) == FOUND
    assert (drawn[3, 3] == 0).all()


def test_drawings_keep_the_colours_of_the_image(tmp_path, rng):
    rgb = rng.integers(0, 256, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    found = Detections.from_boxes([[20, 30, 60, 70]], [34.2])
    drawn = draw_detections(rgb, found, "car")
    kept = (drawn == rgb).all(axis=2)
    assert 0.8 < kept.mean() < 1
    for same in (tmp_path / "a.png", Image.fromarray(rgb)):
        np.testing.assert_array_equal(draw_detections(same, found, "car"), drawn)
    np.testing.assert_array_equal(draw_detections(rgb[..., ::-1], found, "car", color="bgr"), drawn)
    grey = draw_detections(rgb[..., 0], found, "car")
    np.testing.assert_array_equal(grey[kept], np.repeat(rgb[..., :1], 3, axis=2)[kept])


def test_the_tag_changes_with_the_score_and_the_label():
    image = np.zeros((90, 120), dtype=np.uint8)

    def drawn(score, label=""):
        return draw_detections(image, Detections.from_boxes([[20, 30, 60, 70]], [score]), label)

    plain = draw_boxes(image, [[20, 30, 60, 70]])
    assert (drawn(34.2) != plain).any()
    assert (drawn(34.2) != drawn(35.9)).any()
    assert (drawn(34.2, "car") != drawn(34.2)).any()
    assert (drawn(34.2, "car") == drawn(34.2, ["car"])).all()
    with pytest.raises(ValueError, match="zip"):
        drawn(34.2, ["car", "van"])


def tagged(shape, box, text):
    """The rows and columns where a tag changes a drawing."""
    image = np.zeros(shape, dtype=np.uint8)
    changed = (draw_boxes(image, [box], texts=[text]) != draw_boxes(image, [box])).any(axis=2)
    return np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))


@pytest.mark.parametrize(
    "box",
    [(0, 0, 30, 30), (170, 0, 200, 30), (0, 90, 30, 120), (170, 90, 200, 120), (0, 0, 200, 120), (-50, -50, 9, 9)],
)
def test_a_tag_at_the_edge_stays_whole(box):
    middle = tagged((120, 200), (80, 50, 110, 80), "face 34.2")
    rows, columns = tagged((120, 200), box, "face 34.2")
    assert np.ptp(columns) >= 0.9 * np.ptp(middle[1])  # one column may coincide with the line of the box
    assert np.ptp(rows) >= np.ptp(middle[0]) - 3


def test_a_tag_too_wide_for_the_image_is_shortened_to_the_score_or_left_out():
    _, columns = tagged((60, 40), (5, 20, 30, 45), "a very long label 34.2")
    assert 10 < np.ptp(columns) < 40
    assert [len(axis) for axis in tagged((8, 8), (1, 1, 7, 7), "34.2")] == [0, 0]


def test_tags_of_boxes_side_by_side_do_not_cover_each_other():
    image = np.zeros((120, 200), dtype=np.uint8)
    boxes = [[50, 50, 80, 80], [56, 50, 86, 80]]
    both = draw_boxes(image, boxes, texts=["face 34.2", "face 12.1"])
    area = (both != draw_boxes(image, boxes)).any(axis=2).sum()
    one = sum(
        (draw_boxes(image, [box], texts=["face 34.2"]) != draw_boxes(image, [box])).any(axis=2).sum() for box in boxes
    )
    assert area > 0.9 * one


def test_a_tracked_frame_shows_the_object_and_the_other_detections():
    image = np.zeros((120, 200, 3), dtype=np.uint8)
    tracked = Tracker(load("face")).update(image)
    assert (draw_tracked_frame(image, tracked) == 0).all()
    found = Detections.from_boxes([[20, 40, 60, 80], [120, 40, 160, 80]], [5.0, 3.0])
    tracked = replace(tracked, detections=found, box=found.boxes[0], track=SimpleNamespace(accepted=True, score=5.0))
    drawn = draw_tracked_frame(image, tracked)
    assert (tuple(drawn[60, 20]), tuple(drawn[60, 120])) == (FOUND, FALSE_POSITIVE)
    half = draw_tracked_frame(image[::2, ::2], tracked, 0.5)
    assert (tuple(half[30, 10]), tuple(half[30, 60])) == (FOUND, FALSE_POSITIVE)


def test_a_sheet_shows_each_mistake_in_the_middle_of_its_tile_with_grey_beyond_the_image():
    images = [np.zeros((40, 40), dtype=np.uint8) for _ in range(2)]
    images[1][:10, :10] = 255
    mistakes = [
        Mistake(0, 0, np.array([20.0, 20.0, 30.0, 30.0]), 1.0),
        Mistake(1, 0, np.array([0.0, 0.0, 10.0, 10.0]), 0.5),
    ]
    sheet = contact_sheet(images, mistakes, columns=5)
    assert sheet.shape == (TILE + 2 * GAP, 2 * (TILE + GAP) + GAP, 3)
    middle = GAP + TILE // 2
    assert (sheet[middle, middle] == 0).all()
    assert (sheet[middle, middle + TILE + GAP] == 255).all()
    assert (sheet[GAP + 1, GAP + TILE + GAP + 1] == 128).all()
    assert contact_sheet(images, mistakes, most=1).shape[1] < sheet.shape[1]


def test_a_sheet_is_in_colour_and_takes_paths(tmp_path):
    rgb = np.zeros((40, 40, 3), dtype=np.uint8)
    rgb[...] = (200, 30, 60)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    mistake = Mistake(0, 0, np.array([10.0, 10.0, 30.0, 30.0]), 1.0)
    sheet = contact_sheet([tmp_path / "a.png"], [mistake])
    assert tuple(sheet[GAP + TILE // 2, GAP + TILE // 2]) == (200, 30, 60)
    np.testing.assert_array_equal(sheet, contact_sheet([rgb], [mistake]))


def test_captions_stand_below_their_tiles_and_inside_of_their_width():
    image, mistake = np.zeros((40, 40), dtype=np.uint8), Mistake(0, 0, np.array([20.0, 20.0, 30.0, 30.0]), 1.0)
    texts = ["a.png\nmissed", "b.png\nmissed", "a.png\nmissed", "long" * 40 + "\n\udcff"]
    sheet = contact_sheet([image], [mistake] * 4, columns=2, captions=texts)
    down = TILE + 2 * LINE + GAP
    assert sheet.shape == (2 * down + GAP, 2 * (TILE + GAP) + GAP, 3)
    cells = [(GAP + row * down, GAP + column * (TILE + GAP)) for row in (0, 1) for column in (0, 1)]
    below = [sheet[top + TILE : top + down - GAP, left : left + TILE] for top, left in cells]
    assert np.array_equal(below[0], below[2])
    assert (below[0][:LINE] != below[1][:LINE]).any()
    assert np.array_equal(below[0][LINE:], below[1][LINE:])
    assert all((text[:LINE].min(axis=(0, 2)) < 128).sum() > 10 for text in below)
    assert (sheet[:, TILE + GAP : TILE + 2 * GAP] == 255).all()  # nothing runs over into the gap


def test_the_end_of_a_name_that_is_too_long_can_still_be_read():
    long, other = draw_caption("shot-" * 20 + "017.png", 90), draw_caption("shot-" * 20 + "018.png", 90)
    assert (long != other).any()
    assert (long[:, -10:] < 128).any()


@pytest.mark.parametrize("window", [(24, 24), (30, 8)])
def test_features_are_drawn_with_their_stage_number_and_weight(window):
    pool = HaarPool.from_window(window)
    weak = Stumps(np.arange(2), np.zeros(2, np.float32), np.ones(2, np.int8), np.zeros(2))
    stage = Stage(pool.take([0, 1]), weak, np.array([2.5, 0.25]), 1.0)
    heavier = replace(stage, coef=np.array([2.5, 7.25]))
    sheets = [
        feature_sheet(Detector.from_base(DetectorBase(CascadeModel(window, (one, one))))) for one in (stage, heavier)
    ]
    changed = np.flatnonzero((sheets[0] != sheets[1]).any(axis=(0, 2)))
    assert sheets[0].shape[1] / 2 <= changed.min() <= changed.max() < sheets[0].shape[1]  # the second weights alone
    first, second = np.split(sheets[0][GAP:], 2)
    assert (first[-30:] != second[-30:]).any()  # numbers of the stages


def test_a_sheet_without_mistakes_is_blank():
    assert (contact_sheet([], []) == 255).all()
