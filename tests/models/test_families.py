from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from experiments.patches import train_detector
from tests import crosses
from tests.cascades import scan

from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import CannotExportError
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.haar import HaarKind, HaarPool
from whet.models.gslda.integral import Corners, IntegralStack, check_window
from whet.models.gslda.pools import FAMILIES, LEAVES, TRAINABLE, columns_of, family_name, from_columns, layout_of
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import train_weak_learners
from whet.opencv.xml_writer import write_opencv
from whet.training.config import TrainingConfig
from whet.training.gslda import pools_for
from whet.training.progress import FitFinished

WINDOW = (8, 8)


def test_every_family_in_leaves_is_a_family():
    assert set(LEAVES.values()) <= set(FAMILIES.values())
    assert TRAINABLE.items() <= FAMILIES.items()


@pytest.mark.parametrize("given", ["lbp,haar", ["lbp", "haar"], " lbp , haar,lbp"])
def test_families_are_selected_by_name_in_any_combination(given):
    config = TrainingConfig(features=given, max_features=20)
    assert config.features == "lbp,haar"
    assert [family_name(pool) for pool in pools_for(WINDOW, config)] == ["lbp", "haar"]


@dataclass(frozen=True, eq=False)
class Points:
    """Differences of a pixel and its right neighbour: what a family has to have, and no more."""

    window: tuple[int, int]
    at: np.ndarray

    categories: ClassVar = None
    channels: ClassVar = 2
    column_types: ClassVar = {"at": (np.dtype(np.int16), ())}
    leaf_column_types: ClassVar = {}

    @classmethod
    def from_columns(cls, window, columns):
        return cls(window, columns["at"])

    @classmethod
    def from_window(cls, window):
        height, width = window
        return cls(window, (np.arange(height)[:, None] * width + np.arange(width - 1)).ravel().astype(np.int16))

    def __len__(self):
        return len(self.at)

    def take(self, indices):
        return Points(self.window, self.at[indices])

    def _haar(self):
        y, x = np.divmod(self.at, self.window[1])
        ones = np.ones(len(self), dtype=np.int16)
        return HaarPool(self.window, np.full(len(self), HaarKind.X2, dtype=np.uint8), x, y, 2 * ones, ones)

    def scan_corners(self) -> Corners:
        return self._haar().scan_corners()

    def evaluate(self, stack):
        check_window(self.window, stack)
        return self._haar().evaluate(stack)


@pytest.fixture(params=[*TRAINABLE, "points"])
def family(request, monkeypatch):
    """Every family of the table, and a new one, which is a class and an entry."""
    monkeypatch.setitem(TRAINABLE, "points", Points)
    return TRAINABLE[request.param]


@pytest.fixture
def stage(family):
    """Five weak learners of random patches."""
    pool, patches = family.from_window(WINDOW), np.random.default_rng(0).integers(0, 200, (60, *WINDOW), np.uint8)
    weak, _ = train_weak_learners(pool, patches, np.arange(60) < 30)
    return Stage(pool.take(weak.feature[:5]), weak.take(np.arange(5)), np.arange(1.0, 6.0), 6.0)


def test_a_scan_accepts_the_windows_whose_patches_are_accepted(stage):
    image = np.random.default_rng(1).integers(0, 256, (20, 20), dtype=np.uint8)
    cascade = Cascade(WINDOW, (stage,))
    found = scan(cascade, image)
    windows = np.lib.stride_tricks.sliding_window_view(image, WINDOW)
    accepted = cascade.accepts(np.ascontiguousarray(windows.reshape(-1, *WINDOW))).reshape(windows.shape[:2])
    assert 0 < accepted.sum() < accepted.size
    assert np.array_equal(np.argwhere(accepted), np.stack([found.y, found.x], axis=1))


def test_columns_and_files_make_the_same_features_again(family, stage, tmp_path):
    stack = IntegralStack.from_patches(np.random.default_rng(1).integers(0, 256, (40, *WINDOW), dtype=np.uint8))
    name, columns = family_name(stage.features), columns_of(stage.features, stage.weak)
    assert list(columns) == list(layout_of(name))
    Detector.from_base(DetectorBase(CascadeModel(WINDOW, (stage,)))).save(tmp_path / "model.whet")
    saved = load(tmp_path / "model.whet").base.model.stages[0]
    for features, weak in (from_columns(name, WINDOW, columns), (saved.features, saved.weak)):
        assert isinstance(features, family)
        assert np.array_equal(
            weak.respond(features.evaluate(stack)), stage.weak.respond(stage.features.evaluate(stack))
        )


def test_a_family_that_opencv_does_not_have_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(TRAINABLE, "points", Points)
    stumps = Stumps(np.arange(1), np.zeros(1, np.float32), np.ones(1, np.int8), np.zeros(1))
    stage = Stage(Points.from_window(WINDOW).take(stumps.feature), stumps, np.ones(1), 0.5)
    with pytest.raises(CannotExportError, match="got points stages"):
        write_opencv(Cascade(WINDOW, (stage,)), tmp_path / "points.xml")


@pytest.mark.slow
def test_a_new_family_can_be_trained_with_checkpoints_saved_and_loaded(monkeypatch, tmp_path):
    monkeypatch.setitem(TRAINABLE, "points", Points)
    pool = TRAINABLE["points"].from_window(crosses.WINDOW)
    checkpoint, model = tmp_path / "points.checkpoint", tmp_path / "points.whet"
    images = crosses.write_images(tmp_path)
    bright = crosses.crosses(300, np.random.default_rng(1), brightness=120)
    arguments = pool, bright, images, replace(crosses.CONFIG, max_weak_learners=20)

    def stop_after_a_stage(event):
        if isinstance(event, FitFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_detector(*arguments, stop_after_a_stage, checkpoint=checkpoint)
    assert checkpoint.exists()
    trained, _ = train_detector(*arguments, checkpoint=checkpoint)
    trained.save(model)
    assert isinstance(load(model).base.model.stages[0].features, Points)
    assert load(model).base_id == trained.base_id == train_detector(*arguments)[0].base_id


def test_a_family_that_is_not_in_the_table_is_named():
    with pytest.raises(TypeError, match=r"Points.*pools"):
        family_name(Points.from_window(WINDOW))
