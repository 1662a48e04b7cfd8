import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from whet.cascade.cascade import Stage
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import MissingExtraError
from whet.evaluation.curves import sweep
from whet.evaluation.evaluation import Mistake, evaluate_detections
from whet.features.haar import HaarPool
from whet.features.weak_learners import TrainedStumps
from whet.plots.drawing import (
    FALSE_POSITIVE,
    FOUND,
    GAP,
    LINE,
    MISSED,
    TILE,
    boxes_drawn,
    caption,
    contact_sheet,
    result_drawn,
    save_image,
)
from whet.plots.features import feature_sheet
from whet.plots.report import draw_precision_recall, draw_roc


@pytest.fixture
def curve():
    return sweep([5.0, 4.0, 3.0, 2.0], [1, 0, 1, 0], n_truths=3, n_images=2)


@pytest.fixture
def panels(monkeypatch):
    """The axes of every figure that is saved."""
    from whet.plots import report as curves

    seen = []

    def save(figure, path):
        seen.append(figure.axes[0])
        return path

    monkeypatch.setattr(curves, "save", save)
    return seen


def test_roc_has_the_points_of_the_curve(curve, panels, tmp_path):
    draw_roc({"ours": curve}, tmp_path / "roc.png")
    draw_roc({"ours": curve}, tmp_path / "roc.png", axis="log", unit="found")
    (linear,), (log,) = (panel.lines for panel in panels)
    np.testing.assert_array_equal(linear.get_xdata(), [0, 0, 1, 1, 2])
    np.testing.assert_allclose(linear.get_ydata(), [0, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    np.testing.assert_array_equal(log.get_xdata(), [0.5, 0.5, 1, 1, 2])
    np.testing.assert_array_equal(log.get_ydata(), [0, 1, 1, 2, 2])
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
    drawn = result_drawn(image, result)
    assert [tuple(drawn[5, x]) for x in (10, 40, 70)] == [FOUND, FALSE_POSITIVE, MISSED]
    strict = result_drawn(image, result, threshold=1.5)
    assert tuple(strict[5, 40]) == (100, 100, 100)
    with Image.open(save_image(drawn, tmp_path / "drawn.png")) as opened:
        np.testing.assert_array_equal(np.asarray(opened), drawn)


def test_boxes_beyond_the_edge_and_without_area_are_drawn_as_far_as_they_go():
    image = np.zeros((20, 20), dtype=np.uint8)
    drawn = boxes_drawn(image, np.array([[-5.0, -5.0, 10.0, 10.0], [3.0, 3.0, 3.0, 3.0]]), width=1)
    assert tuple(drawn[9, 5]) == FOUND
    assert (drawn[3, 3] == 0).all()


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
    long, other = caption("shot-" * 20 + "017.png", 90), caption("shot-" * 20 + "018.png", 90)
    assert (long != other).any()
    assert (long[:, -10:] < 128).any()


@pytest.mark.parametrize("window", [(24, 24), (30, 8)])
def test_features_are_drawn_with_their_stage_number_and_weight(window):
    pool = HaarPool.from_window(window)
    weak = TrainedStumps(np.arange(2), np.zeros(2, np.float32), np.ones(2, np.int8), np.zeros(2))
    stage = Stage(pool.take([0, 1]), weak, np.array([2.5, 0.25]), 1.0)
    heavier = replace(stage, coef=np.array([2.5, 7.25]))
    sheets = [feature_sheet(Detector(DetectorBase(window, (one, one)))) for one in (stage, heavier)]
    changed = np.flatnonzero((sheets[0] != sheets[1]).any(axis=(0, 2)))
    assert sheets[0].shape[1] / 2 <= changed.min() <= changed.max() < sheets[0].shape[1]  # the second weights alone
    first, second = np.split(sheets[0][4:], 2)
    assert (first[-30:] != second[-30:]).any()  # numbers of the stages


def test_a_sheet_without_mistakes_is_blank():
    assert (contact_sheet([], []) == 255).all()
