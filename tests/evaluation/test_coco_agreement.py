"""Average precision of real detections, next to that of pycocotools.

Both sides match detections to truths by falling score, and both replace the precision at a recall by the best
precision at that recall or a higher one. Four rules differ:

- COCO accepts an IoU of at least the threshold, whet an IoU above it. `COCOeval` gets the next larger number here.
- COCO counts equal scores one after the other, whet as one step. The detections here have different scores.
- COCO reads the precision at 101 recalls (0, 0.01, ... 1) and takes the mean. whet takes the whole area, as PASCAL
  does since 2010. Between two found truths the precision is constant, so the area is the mean of the precisions at
  the middle of each step, (i + 1/2) / n for n truths. `COCOeval` accepts these recalls in place of its own.
- COCO divides by the number of detections plus 2e-16. The tolerance is 1e-9.
"""

import contextlib
import io
from functools import cache

import numpy as np
import pytest
from experiments.mit_cmu import labelled_images
from PIL import Image

from whet.detector.storage import load
from whet.errors import DataNotFoundError
from whet.evaluation.evaluation import Label, evaluate_detections
from whet.images.boxes import box_iou
from whet.io.image_files import as_grey, read_grey

pytest.importorskip("pycocotools")
pytest.importorskip("skimage")

ABOVE_ONE_HALF = np.nextafter(0.5, 1)
COCO_RECALLS = np.linspace(0, 1, 101)
ALL = {"min_score": -1e9}  # with the detections that every operating point would leave out
# Windows before grouping: each face is found many times, and all but one of them are false positives.
SETTINGS = {"grouped": ALL, "single windows": ALL | {"grouping": None, "scale_factor": 1.3}}


@cache
def photographs():
    """Photographs with pasted faces of LFW, and one with a face of its own: (images, boxes of the faces)."""
    from skimage import data

    rng = np.random.default_rng(14)
    faces = (data.lfw_subset()[:100] * 255).astype(np.uint8)
    images, truths = [], []
    for name in ("coffee", "chelsea", "camera"):
        for flip in (False, True):
            image = as_grey(getattr(data, name)()).copy()
            image = image[:, ::-1].copy() if flip else image
            boxes = [_paste(image, faces[rng.integers(100)], corner, rng) for corner in _grid(image.shape)]
            images.append(_noisy(image, rng))
            truths.append(np.array(boxes, dtype=np.float64))
    for size in (512, 300, 170):
        image = np.asarray(Image.fromarray(as_grey(data.astronaut())).resize((size, size)))
        face = np.array([[168.0, 57.0, 282.0, 183.0]]) * size / 512
        images.append(_noisy(image, rng))
        truths.append(face)
    return tuple(images), tuple(truths)


def _grid(shape, cell=110):
    return [(y, x) for y in range(0, shape[0] - cell, 2 * cell) for x in range(0, shape[1] - cell, cell)]


def _paste(image, face, corner, rng, smallest=30, largest=100):
    side = int(rng.integers(smallest, largest))
    y, x = corner
    image[y : y + side, x : x + side] = np.asarray(Image.fromarray(face).resize((side, side), Image.Resampling.BICUBIC))
    return [x, y, x + side, y + side]


def _noisy(image, rng, deviation=30):
    return (image + rng.normal(0, deviation, image.shape)).clip(0, 255).astype(np.uint8)


@cache
def mit_cmu():
    """Every third image of MIT+CMU: (images, boxes of the faces)."""
    try:
        labelled = labelled_images()[::3]
    except DataNotFoundError as error:
        pytest.skip(str(error))
    return tuple(read_grey(one.path) for one in labelled), tuple(one.boxes for one in labelled)


@cache
def detected(source, setting):
    detector = load("face")
    found = [detector.detect(image, **SETTINGS[setting]) for image in source()[0]]
    return [(np.asarray(one.boxes, np.float64), np.asarray(one.scores, np.float64)) for one in found]


def ignore_flags(truths, detections, rng):
    """Truths with flags: a third of the faces is ignored, and so are regions around a third of the false positives."""
    flagged = []
    for boxes, (found, _) in zip(truths, detections, strict=True):
        wrong = found[box_iou(found, boxes).max(axis=1, initial=0) < 0.3]
        regions = wrong[rng.random(len(wrong)) < 1 / 3] + np.array([-9, -9, 3, 3]) if len(wrong) else wrong
        flags = np.append(rng.random(len(boxes)) < 1 / 3, np.ones(len(regions), bool))
        flagged.append((np.concatenate([boxes, regions.reshape(-1, 4)]), flags))
    return flagged


def coco_evaluation(detections, truths, recalls):
    """`COCOeval` after `accumulate`, of one category, all areas and all detections."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image} for image in range(len(truths))],
            "categories": [{"id": 1, "name": "face"}],
            "annotations": [
                {"id": number, "image_id": image, "category_id": 1, "iscrowd": int(ignored), **_coco_box(box)}
                # A match is stored as the number of its truth, where 0 means none: numbers start at 1.
                for number, (image, box, ignored) in enumerate(
                    (
                        (image, box, ignored)
                        for image, (boxes, flags) in enumerate(truths)
                        for box, ignored in zip(boxes, flags, strict=True)
                    ),
                    start=1,
                )
            ],
        }
        truth.createIndex()
        results = truth.loadRes(
            [
                {"image_id": image, "category_id": 1, "score": float(score), "bbox": _coco_box(box)["bbox"]}
                for image, (boxes, scores) in enumerate(detections)
                for box, score in zip(boxes, scores, strict=True)
            ]
        )
        run = COCOeval(truth, results, "bbox")
        run.params.iouThrs, run.params.recThrs = np.array([ABOVE_ONE_HALF]), recalls
        run.params.maxDets = [10**6]
        run.params.areaRng, run.params.areaRngLbl = [[0, 1e10]], ["all"]
        run.evaluate()
        run.accumulate()
    return run


def _coco_box(box):
    x1, y1, x2, y2 = map(float, box)
    return {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}


def coco_precisions(run):
    """Precision at each recall."""
    return run.eval["precision"][0, :, 0, 0, 0]


def coco_labels(run, n):
    """Our labels (n,) of COCO's matches; results are numbered from 1 in the order in which they were passed."""
    labels = np.full(n, Label.FALSE, dtype=np.int8)
    for image in filter(None, run.evalImgs):
        numbers = np.array(image["dtIds"], dtype=int) - 1
        labels[numbers[image["dtMatches"][0] > 0]] = Label.TRUE
        labels[numbers[image["dtIgnore"][0]]] = Label.IGNORED
    return labels


def interpolated(curve, recalls):
    """Precision at each recall: the best at the first step that reaches it and all steps after; 0 beyond the last."""
    best = np.maximum.accumulate(curve.precision[:0:-1])[::-1]  # without the point before the first detection
    steps = np.searchsorted(curve.recall[1:], recalls, side="left")
    return np.append(best, 0.0)[steps]


def check_agreement(detections, truths):
    ours = evaluate_detections(detections, truths)
    scores = np.concatenate([scores for _, scores in detections])
    labels = np.concatenate([image.matching.labels for image in ours.images])
    n = ours.curve.n_truths
    assert len(np.unique(scores)) == len(scores)
    assert (labels == Label.TRUE).sum() >= 10
    assert (labels == Label.FALSE).sum() >= 10

    coco = coco_evaluation(detections, truths, COCO_RECALLS)
    np.testing.assert_array_equal(coco_labels(coco, len(scores)), labels)
    precisions = interpolated(ours.curve, COCO_RECALLS)
    np.testing.assert_allclose(precisions, coco_precisions(coco), rtol=0, atol=1e-9)
    np.testing.assert_allclose(coco.eval["recall"].item(), ours.curve.recall[-1], rtol=0, atol=1e-9)

    middles = (np.arange(n) + 0.5) / n
    area = coco_precisions(coco_evaluation(detections, truths, middles)).mean()
    assert ours.average_precision == pytest.approx(area, rel=0, abs=1e-9)
    # A falling curve between 0 and 1: the mean of 101 points is at most one interval away from the area.
    assert ours.average_precision == pytest.approx(coco_precisions(coco).mean(), rel=0, abs=0.01)
    assert 0.1 < ours.average_precision < 0.99  # perfect detections would agree under many rules
    return ours


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("source", [photographs, pytest.param(mit_cmu, marks=pytest.mark.slow)])
def test_average_precision_of_the_face_detector_is_that_of_coco(source, setting):
    check_agreement(detected(source, setting), [(boxes, np.zeros(len(boxes), bool)) for boxes in source()[1]])


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("source", [photographs, pytest.param(mit_cmu, marks=pytest.mark.slow)])
def test_ignored_regions_are_crowds_of_coco(source, setting):
    detections = detected(source, setting)
    ours = check_agreement(detections, ignore_flags(source()[1], detections, np.random.default_rng(5)))
    assert any((image.matching.labels == Label.IGNORED).any() for image in ours.images)
