from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.detectors import bull_finder, bull_scene

from whet.errors import DataNotFoundError, UnreadableImageError
from whet.evaluation.evaluation import evaluate_detections
from whet.evaluation.runs import EvaluationRun, evaluate
from whet.io.annotations.annotation import AnnotatedImage


def drawn(rng, n=12):
    """Results of images with some boxes found, some missed, and false positives; scores are whole, so that they tie."""
    detections, truths = [], []
    for _ in range(n):
        corner = np.arange(4)[:, None] * 20.0
        boxes = np.concatenate([corner, corner, corner + 10, corner + 10], axis=1)
        found = boxes[rng.random(4) < 0.7]
        wrong = boxes[: rng.integers(0, 3)] + 300
        both = np.concatenate([found, wrong])
        detections.append((both, rng.integers(0, 6, len(both)).astype(float)))
        truths.append((boxes, rng.random(4) < 0.2))
    return detections, truths


def test_the_bootstrap_is_that_of_evaluating_the_drawn_images_anew(rng, monkeypatch):
    monkeypatch.setattr("whet.evaluation.runs.RESAMPLES", 40)
    detections, truths = drawn(rng)
    run = EvaluationRun((Path("a.png"),) * 12, evaluate_detections(detections, truths), 2.0)
    measures = run.measures(seed=3)
    areas, miss_rates, false_positives = [], [], []
    for times in np.random.default_rng(3).multinomial(12, np.full(12, 1 / 12), 40):
        rows = np.repeat(np.arange(12), times)
        again = evaluate_detections([detections[i] for i in rows], [truths[i] for i in rows])
        areas.append(again.average_precision)
        miss_rates.append(again.log_average_miss_rate)
        false_positives.append(len(again.worst_false_positives(2.0)) / 12)
    resampled = {
        "average precision": areas,
        "log-average miss rate": miss_rates,
        "false positives per image": false_positives,
    }
    for name, values in resampled.items():
        assert (measures[name].low, measures[name].high) == pytest.approx(np.quantile(values, (0.025, 0.975)))
        assert measures[name].low <= measures[name].value <= measures[name].high
    assert measures["recall"].value == run.found.sum() / run.truths.sum()
    assert measures["precision"].value == run.found.sum() / (run.found.sum() + run.n_false_positives)


def test_a_run_is_shown_by_its_measures(rng):
    run = EvaluationRun((Path("some/where/a.png"),) * 12, evaluate_detections(*drawn(rng)), 2.0)
    measures = run.measures()
    assert repr(run).startswith(f"EvaluationRun(12 images, {run.truths.sum()} objects: ")
    for name in ("recall", "precision", "average precision"):
        assert f"{name} {measures[name].value:.3f}" in repr(run)
    assert len(repr(run)) < 150
    assert len(repr(run.evaluation)) < 80


def test_nothing_to_find_or_one_image_gives_no_numbers_rather_than_wrong_ones():
    empty = evaluate_detections([([], []), ([], [])], [([], None), ([], None)])
    measures = EvaluationRun((Path("a.png"), Path("b.png")), empty, 0.0).measures()
    assert np.isnan([measures["recall"].value, measures["average precision"].low]).all()
    assert measures["false positives per image"].high == pytest.approx(1.844, abs=1e-3)
    box = [[0, 0, 9, 9]]
    alone = EvaluationRun(
        (Path("a.png"),), evaluate_detections([([[50, 50, 60, 60], *box], [1.0, 2.0])], [(box, None)]), 0.0
    )
    measures = alone.measures()
    assert measures["average precision"].value == 1.0
    assert np.isnan([measures["average precision"].low, measures["false positives per image"].high]).all()


def test_images_that_cannot_be_read_are_named(tmp_path):
    Image.fromarray(bull_scene()).save(tmp_path / "scene.png")
    (tmp_path / "cut.png").write_bytes(b"no image")
    good, bad = (AnnotatedImage(tmp_path / name, (150, 200)) for name in ("scene.png", "cut.png"))
    run = evaluate(bull_finder(), [bad, good])
    assert run.paths == (tmp_path / "scene.png",)
    assert "cut.png" in str(run.unread[0])
    with pytest.raises(UnreadableImageError, match="none of the 1 images"):
        evaluate(bull_finder(), [bad])
    with pytest.raises(DataNotFoundError, match="no images"):
        evaluate(bull_finder(), [])
