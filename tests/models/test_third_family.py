# ruff: noqa: ARG002 - a family need not use all that the contract offers
"""A third family of models, by normalised correlation with a template: what detects, learns and is saved needs no more.

A model and its entry in the table of families: everything else in whet stands on the contract
(`whet.models.contract`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from tests.cascades import loose_crop, windows_of
from tests.detectors import BULL, PROVENANCE, bull_scene
from tests.web.studios import labels_for, opened

import whet
from whet.corrections.reference import GUARD_NEGATIVE, GUARD_POSITIVE, NEGATIVE, POSITIVE, Reference
from whet.detector.base import DetectorBase, Reporting
from whet.errors import CannotExportError, CannotLearnError, CannotSeparateError, ModelFileError
from whet.images.boxes import box_iou
from whet.images.detections import FiredWindows
from whet.images.pyramid import Grid, Pyramid, Span, WindowIndex
from whet.models.contract import FAMILIES, Area, Family, Model, Saved
from whet.models.responses import Responses, Votes
from whet.training.config import TrainingConfig
from whet.training.gslda import given_window
from whet.training.loop import FamilyTraining, Fitting, Training
from whet.training.preparation import prepare_windows
from whet.training.progress import StopReason
from whet.training.samples import Positives

pytestmark = pytest.mark.slow

# The family begins here.

# A pixel is compared with these, in standard deviations of its window from the mean.
LEVELS = np.array([-0.9, -0.3, 0.3, 0.9])
MIN_SIGMA = 10.0


@dataclass(frozen=True, eq=False)
class TemplateModel:
    """Accepts windows whose normalised correlation with a template (height, width) is above a threshold.

    A weak learner asks whether one pixel of the normalised window is above one of the levels: the weighted sum of all
    is the correlation with the window in steps of 0.6 standard deviations.
    """

    template: np.ndarray
    threshold: float
    family: ClassVar[str] = "template"
    grid: ClassVar[Grid] = Grid()

    @classmethod
    def from_patches(cls, patches, least):
        """The mean of normalised patches, and the threshold that this share of them passes."""
        mean = normalised(patches)[0].mean(axis=0)
        model = cls(mean - mean.mean(), 0.0)
        scores = model.votes.unlimited.scores(model.respond(patches)[0])
        return replace(model, threshold=float(np.quantile(scores, 1 - least)))

    @property
    def window(self):
        return self.template.shape

    @cached_property
    def votes(self):
        weights = np.repeat(self.template.ravel() / np.linalg.norm(self.template), len(LEVELS))
        return Votes.from_stages([weights], [self.threshold], [None])

    def scan(self, pyramid, votes=None, *, spans=None, fast=None, threads=None):
        votes, parts = self.votes if votes is None else votes, []
        for scale, level in zip(pyramid.scales, pyramid.levels, strict=True):
            if spans is not None and scale not in spans:
                continue
            rows, columns = (side - length + 1 for side, length in zip(level.shape, self.window, strict=True))
            span = Span(0, rows, 0, columns) if spans is None else spans[scale]
            y, x = np.mgrid[span.top : span.bottom : pyramid.step, span.left : span.right : pyramid.step].reshape(2, -1)
            responses, has_contrast = self.respond(level.patches(y, x, self.window))
            scores = np.where(has_contrast, votes.scores(responses), -np.inf)
            accepted = scores > -np.inf
            index = WindowIndex(np.full(int(accepted.sum()), scale), y[accepted], x[accepted])
            parts.append(FiredWindows(index, pyramid.boxes(index), scores[accepted], len(scores)))
        return FiredWindows.concatenate(parts)

    def looks_at(self, index, pyramid=None, *, fast=None):
        return np.ones(len(index), np.bool_)

    def responses(self, pyramid, index):
        return self.respond(pyramid.patches(index))

    def respond(self, patches):
        """Responses to patches (n, height, width), and which have enough contrast."""
        values, has_contrast = normalised(patches)
        return Responses.from_bits((values[..., None] > LEVELS).reshape(len(patches), -1)), has_contrast

    def count(self, *_):
        raise CannotLearnError("a template does not follow from examples; correct it by boxes in images")

    def learned(self, counts):
        return self

    def saved(self, counts=None):
        return Saved({"threshold": self.threshold}, {"template": self.template})


def normalised(patches):
    """Patches minus their mean, by their deviation; and which have enough contrast."""
    values = patches.astype(np.float64)
    sigma = values.std(axis=(1, 2))
    return (values - values.mean(axis=(1, 2), keepdims=True)) / np.maximum(sigma, 1.0)[:, None, None], sigma > MIN_SIGMA


def load_template(window, table, arrays):
    """A model from what a file holds; raises ValueError for anything that is not one."""
    template, threshold = arrays.get("template"), table.get("threshold")
    if set(arrays) != {"template"} or set(table) != {"threshold"} or type(threshold) is not float:
        raise ValueError(f"got {sorted(table)} and arrays {sorted(arrays)}: not those of a template")
    if template.dtype != np.float64 or template.shape != window or not template.any():
        raise ValueError(f"got a template of {template.dtype} {template.shape}; expected float64 {window}, not all 0")
    return TemplateModel(template, threshold), None


def area(model, learner):
    y, x = divmod(learner // len(LEVELS), model.window[1])
    return [Area(x, y, 1, 1)]


class TemplateTraining(FamilyTraining):
    """A training of templates: those of all objects that are not held out."""

    name = "template"

    def fit(self, samples, config):
        return TemplateModel.from_patches(samples.positives.windows[~samples.is_held_out], 0.98)


TEMPLATES = Family("template", load_template, areas=area, training=TemplateTraining())

# The family ends here.


@pytest.fixture(autouse=True)
def _family(monkeypatch):
    monkeypatch.setitem(FAMILIES, "template", TEMPLATES)
    monkeypatch.setattr("whet.detector.detector.time.time", lambda: 1_700_000_000.7)


def template_base(n=200):
    """A template of loose crops of the bull, with a reference set of others and of a scene without bulls."""
    rng = np.random.default_rng(2)
    model = TemplateModel.from_patches(np.array([loose_crop(rng) for _ in range(n)]), 0.9)
    objects = np.array([loose_crop(rng) for _ in range(160)])
    windows = windows_of(bull_scene(9)[:, :100], model.window, 2)[0]
    patches = np.concatenate([objects, windows[rng.choice(len(windows), 160)]])
    part = np.repeat([GUARD_POSITIVE, POSITIVE, GUARD_NEGATIVE, NEGATIVE], 80).astype(np.uint8)
    responses, _ = model.respond(patches)
    reference = Reference(responses, part, np.ones(320, np.float32), np.arange(320, dtype=np.int32), 4)
    return DetectorBase(model, PROVENANCE.with_class("bull"), reference=reference)


BASE = template_base()


def detector(reference=True):
    base = BASE if reference else replace(BASE, reference=None)
    return whet.Detector.from_base(base, reporting=Reporting(operating_points={"default": 0.1}))


def finds(made, box, image):
    return bool((box_iou(np.atleast_2d(box), made.detect(image).boxes) >= 0.5).any())


def wrong_boxes(made, image):
    """Detections beside the bulls."""
    bulls = np.array([[40.0, 30.0, 70.0, 60.0], [120.0, 70.0, 170.0, 120.0]])
    boxes = made.detect(image).boxes
    return boxes[(box_iou(boxes, bulls) < 0.3).all(axis=1)]


def hidden():
    """A scene in which the bull at (40, 30) is not found for noise."""
    rng = np.random.default_rng(0)
    for noise in range(60, 900, 30):
        image = bull_scene(3).astype(int)
        image[30:60, 40:70] += rng.normal(0, noise, (30, 30)).astype(int)
        image = image.clip(0, 255).astype(np.uint8)
        if not finds(detector(), BULL, image):
            return image
    raise AssertionError("it is found in any noise")


def test_the_family_has_at_most_120_lines():
    source = Path(__file__).read_text(encoding="utf-8")
    family = source.split("# The family begins here.")[1].split("# The family ends here.")[0]
    assert len(family.strip().splitlines()) <= 120


def test_a_model_has_at_most_ten_members():
    members = {name for name in vars(Model) if not name.startswith("_")}
    assert len(members) <= 10
    assert all(hasattr(BASE.model, name) for name in members)


def test_its_score_is_nearly_the_normalised_correlation():
    patches = windows_of(bull_scene(1), BASE.window, 5)[0]
    values, has_contrast = normalised(patches)
    template = BASE.model.template / np.linalg.norm(BASE.model.template)
    exact = (values * template).sum(axis=(1, 2))[has_contrast]
    steps = BASE.model.votes.unlimited.scores(BASE.model.respond(patches)[0])[has_contrast]
    assert np.corrcoef(exact, steps)[0, 1] > 0.97


def test_it_detects():
    for seed in (1, 2, 3):
        assert finds(detector(), [40, 30, 70, 60], bull_scene(seed))
        assert finds(detector(), [120, 70, 170, 120], bull_scene(seed))
    found = detector().detect(bull_scene(1))
    assert set(found.labels) == {"bull"}
    assert ((found.probabilities > 0) & (found.probabilities <= 1)).all()
    assert len(detector().detect(np.zeros((5, 5), np.uint8))) == 0


def test_a_scan_accepts_what_the_responses_of_each_window_say():
    model = BASE.model
    pyramid = Pyramid.from_image(bull_scene(1), model.window, grid=model.grid)
    every, fired = model.scan(pyramid, model.votes.unlimited), model.scan(pyramid)
    responses, has_contrast = model.responses(pyramid, every.index)
    scores = model.votes.scores(responses)
    assert has_contrast.all()
    assert list(every.index.take(scores > -np.inf)) == list(fired.index)
    assert np.array_equal(scores[scores > -np.inf], fired.scores)


@pytest.mark.filterwarnings("ignore::whet.errors.WorseEstimateWarning")
@pytest.mark.parametrize("reference", [False, True])
def test_a_false_positive_is_gone_after_a_correction_and_comes_back_when_it_is_unlearned(reference):
    made = detector(reference)
    before, boxes = made.to_bytes(), wrong_boxes(made, bull_scene(1))
    assert len(boxes) >= 2
    for box in boxes:
        update = made.learn(bull_scene(1), box, False)
        assert not update.unsatisfied
        assert not finds(made, box, bull_scene(1))
        assert finds(made, BULL, bull_scene(1))
        made.unlearn(update)
        assert finds(made, box, bull_scene(1))
    assert made.to_bytes() == before


@pytest.mark.parametrize("reference", [False, True])
def test_a_missed_object_is_found_after_a_correction(reference):
    made, image = detector(reference), hidden()
    before = made.to_bytes()
    update = made.learn(image, BULL, True)
    assert not update.unsatisfied
    assert finds(made, BULL, image)
    assert all(check.holds for check in made.check())
    made.unlearn(update)
    assert made.to_bytes() == before
    assert not finds(made, BULL, image)


@pytest.mark.filterwarnings("ignore::whet.errors.WorseEstimateWarning")
def test_it_is_saved_loaded_and_merged_and_order_does_not_matter(tmp_path):
    straight, image = detector(), hidden()
    records = [
        *straight.learn(bull_scene(1), wrong_boxes(straight, bull_scene(1))[:2], False),
        *straight.learn(image, BULL, True),
    ]
    assert len(records) == 3
    turned = detector()
    for record in records[::-1]:
        turned.add([record])
        turned.save(tmp_path / "bull.whet")
        turned = whet.load(tmp_path / "bull.whet")
    one, other = detector(), detector()
    one.add(records[:2])
    other.add(records[1:])
    one.merge(other)
    assert one.to_bytes() == turned.to_bytes() == straight.to_bytes()
    assert np.array_equal(turned.detect(image).to_array(), straight.detect(image).to_array())
    assert isinstance(turned.model, TemplateModel)
    assert turned.base_id == BASE.base_id


def test_a_file_of_an_unknown_family_or_of_another_template_is_refused(monkeypatch):
    data = detector().to_bytes()
    monkeypatch.delitem(FAMILIES, "template")
    with pytest.raises(ModelFileError, match="template"):
        whet.Detector.from_bytes(data)
    with pytest.raises(ValueError, match="not all 0"):
        load_template((12, 12), {"threshold": 1.0}, {"template": np.zeros((12, 12))})
    other = DetectorBase(replace(BASE.model, threshold=BASE.model.threshold + 1e-9))
    assert other.base_id != BASE.base_id


def test_what_the_family_cannot_do_is_said(tmp_path):
    with pytest.raises(CannotLearnError, match="boxes in images"):
        detector().learn_patches(np.zeros((1, 12, 12), np.uint8), False)
    with pytest.raises(CannotExportError, match="template"):
        detector().export_opencv(tmp_path / "bull.xml")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whet.training.loop.FewPositivesWarning")
def test_it_trains_by_the_same_loop_and_a_repeated_training_gives_the_same_bytes(tmp_path):
    folder = tmp_path / "bulls"
    folder.mkdir()
    rows = ["image,x,y,width,height,label"]
    for seed in range(14):  # cut to one bull and some background
        Image.fromarray(bull_scene(seed)[15:85, 20:110]).save(folder / f"{seed}.png")
        rows.append(f"{seed}.png,20,15,30,30,bull")
    (folder / "bulls.csv").write_text("\n".join(rows) + "\n")
    trained, again = (whet.train(folder / "bulls.csv", features="template", window=(12, 12)) for _ in range(2))
    assert isinstance(trained.model, TemplateModel)
    assert trained.to_bytes() == again.to_bytes()
    assert np.mean([finds(trained, BULL, bull_scene(seed)) for seed in range(20, 26)]) > 0.8
    boxes = wrong_boxes(trained, bull_scene(20))
    if len(boxes):
        trained.learn(bull_scene(20), boxes[0], False)
        assert not finds(trained, boxes[0], bull_scene(20))


class Stuck(Fitting):
    """No better model from some step on."""

    best = 1

    def fit(self, training):
        return None if training.step >= self.best else super().fit(training)


@pytest.mark.filterwarnings("ignore::whet.training.loop.FewPositivesWarning")
def test_a_training_stops_where_the_family_has_no_better_model(tmp_path, monkeypatch):
    for seed in range(4):
        Image.fromarray(bull_scene(seed)).save(tmp_path / f"{seed}.png")
    rng = np.random.default_rng(0)
    objects = Positives(np.array([loose_crop(rng) for _ in range(60)]), np.arange(60))
    config = TrainingConfig(features="template")
    images = sorted(tmp_path.glob("*.png"))
    prepared = prepare_windows(TemplateTraining(), given_window(BASE.window), objects, images, config)
    monkeypatch.setattr(TemplateTraining, "fitting", lambda _, prepared: Stuck(prepared))
    result = Training(prepared).run().result
    assert (result.stop_reason, result.n_stages) == (StopReason.CANNOT_IMPROVE, 1)
    monkeypatch.setattr(Stuck, "best", 0)
    with pytest.raises(CannotSeparateError, match="check that the boxes"):
        Training(prepared).run()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whet.errors.WorseEstimateWarning")
def test_the_studio_shows_and_corrects_it(tmp_path):
    with opened(tmp_path, detector=detector(), n=3) as (workspace, keys):
        shown = workspace.detections(keys[1])
        expected = detector().detect(np.repeat(bull_scene(1)[:, :, None], 3, axis=2))
        assert np.array_equal(shown.boxes, expected.boxes)
        box = wrong_boxes(detector(), bull_scene(1))[0]
        labels_for(workspace).label(keys[1], [box.tolist()], False)
        scanned = detector()
        scanned.learn(bull_scene(1), box, False)
        for number, key in enumerate(keys):
            assert np.array_equal(workspace.detections(key).boxes, scanned.detect(bull_scene(number)).boxes)
