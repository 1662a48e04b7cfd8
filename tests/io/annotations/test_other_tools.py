"""Files of pycocotools and supervision are read as they read them, and ours are read there."""

import json

import numpy as np
import pytest
from tests.io.annotations.sets import image, save_image

from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import read_annotations, write_annotations

BOXES = {
    "one.jpg": [[0, 0, 200, 100], [10.5, 20.25, 60, 61]],
    "zwei drei.jpg": [[150, 50, 200, 100]],
    "leer.jpg": [],
}
LABELS = {"one.jpg": ["car", "person"], "zwei drei.jpg": ["car"], "leer.jpg": []}


@pytest.fixture
def ours(tmp_path):
    images = [image(save_image(tmp_path / "images" / name), BOXES[name], LABELS[name]) for name in BOXES]
    return Annotations(tuple(images), ("car", "person"))


def by_name(annotations):
    return {each.path.name: each for each in annotations.images}


def test_pycocotools_reads_our_coco(ours, tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    crowd = image(save_image(tmp_path / "images" / "crowd.jpg"), [[5, 5, 50, 50]], ["car"], [True])
    write_annotations(Annotations((*ours.images, crowd), ours.classes), tmp_path / "set.json")
    read = coco.COCO(tmp_path / "set.json")
    assert [category["name"] for category in read.loadCats(read.getCatIds())] == ["car", "person"]
    assert len(read.getAnnIds(iscrowd=True)) == 1
    assert len(read.getAnnIds(iscrowd=False)) == ours.n_boxes
    for row in read.loadImgs(read.getImgIds()):
        assert (tmp_path / row["file_name"]).is_file()
        assert (row["height"], row["width"]) == (100, 200)
        boxes = [each["bbox"] for each in read.loadAnns(read.getAnnIds(imgIds=row["id"], iscrowd=False))]
        expected = [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in BOXES.get(row["file_name"][7:], [])]
        assert boxes == expected


def test_our_coco_is_truth_that_pycocotools_can_evaluate_against(ours, tmp_path):
    coco, evaluation = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")
    from whet.images.detections import Detections

    write_annotations(ours, tmp_path / "set.json")
    truth = coco.COCO(tmp_path / "set.json")
    ids = {row["file_name"].removeprefix("images/"): row["id"] for row in truth.loadImgs(truth.getImgIds())}
    results = []
    for name, boxes in BOXES.items():
        for box, label in zip(boxes, LABELS[name], strict=True):
            found = Detections(np.array([box], dtype=np.float64), np.array([0.9]))
            results += found.to_coco(ids[name], category_id=["car", "person"].index(label) + 1)
    run = evaluation.COCOeval(truth, truth.loadRes(results), "bbox")
    run.evaluate()
    run.accumulate()
    run.summarize()
    assert run.stats[0] == pytest.approx(1.0)


def test_we_read_what_pycocotools_took_from_an_instances_file(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    save_image(tmp_path / "val" / "000000000139.jpg")
    table = {
        "info": {},
        "licenses": [],
        "images": [{"id": 139, "file_name": "000000000139.jpg", "height": 100, "width": 200, "license": 2}],
        "categories": [
            {"id": 1, "name": "person", "supercategory": "person"},
            {"id": 62, "name": "chair", "supercategory": "furniture"},
        ],
        "annotations": [
            {
                "id": 11,
                "image_id": 139,
                "category_id": 62,
                "bbox": [23.66, 16.78, 38.0, 30.0],
                "area": 1140.0,
                "iscrowd": 0,
                "segmentation": [[23.66, 16.78, 61.66, 16.78, 61.66, 46.78]],
            },
            {
                "id": 12,
                "image_id": 139,
                "category_id": 1,
                "bbox": [100, 10, 90, 80],
                "area": 9.0,
                "iscrowd": 1,
                "segmentation": {"size": [100, 200], "counts": [0, 20000]},
            },
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(table))
    theirs = coco.COCO(tmp_path / "instances.json")
    read = read_annotations(tmp_path / "instances.json", images=tmp_path / "val")
    assert read.counts == {"person": 0, "chair": 1}
    x, y, width, height = theirs.loadAnns(11)[0]["bbox"]
    assert np.allclose(read.images[0].objects, [[x, y, x + width, y + height]], rtol=0, atol=1e-12)
    assert read.images[0].ignored.tolist() == [[100, 10, 190, 90]]


@pytest.fixture
def supervision():
    return pytest.importorskip("supervision")


def their_set(supervision, ours):
    """The same data set as supervision keeps it."""
    detections = {
        str(each.path): supervision.Detections(
            xyxy=each.boxes.astype(np.float32).reshape(-1, 4),
            class_id=np.array([ours.classes.index(label) for label in each.labels], dtype=int),
        )
        for each in ours.images
    }
    return supervision.DetectionDataset(classes=list(ours.classes), images=list(detections), annotations=detections)


def assert_they_hold_ours(theirs, ours, within):
    found = {str(path).rsplit("/", 1)[-1]: detections for path, _, detections in theirs}
    assert set(found) == set(by_name(ours))
    for name, each in by_name(ours).items():
        detections = found[name]
        assert [theirs.classes[i] for i in ([] if len(detections) == 0 else detections.class_id)] == list(each.labels)
        assert np.abs(detections.xyxy.reshape(-1, 4) - each.boxes).max(initial=0) <= within


def test_supervision_reads_our_coco(supervision, ours, tmp_path):
    write_annotations(ours, tmp_path / "set.json")
    theirs = supervision.DetectionDataset.from_coco(str(tmp_path), str(tmp_path / "set.json"))
    assert_they_hold_ours(theirs, ours, 1e-4)


def test_supervision_reads_our_yolo(supervision, ours, tmp_path):
    write_annotations(ours, tmp_path / "yolo", "yolo")
    theirs = supervision.DetectionDataset.from_yolo(
        str(tmp_path / "yolo" / "images" / "train"),
        str(tmp_path / "yolo" / "labels" / "train"),
        str(tmp_path / "yolo" / "data.yaml"),
    )
    assert_they_hold_ours(theirs, ours, 1e-4)


def test_supervision_reads_our_voc(supervision, ours, tmp_path):
    write_annotations(ours, tmp_path / "voc", "voc")
    theirs = supervision.DetectionDataset.from_pascal_voc(str(tmp_path / "images"), str(tmp_path / "voc"))
    assert_they_hold_ours(theirs, ours, 1e-4)


def test_we_read_coco_of_supervision(supervision, ours, tmp_path):
    their_set(supervision, ours).as_coco(annotations_path=str(tmp_path / "theirs.json"))
    read = read_annotations(tmp_path / "theirs.json")
    assert_we_hold(read, ours, 1e-4)


def test_we_read_yolo_of_supervision(supervision, ours, tmp_path):
    folder = tmp_path / "theirs"
    their_set(supervision, ours).as_yolo(str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml"))
    # Five digits of a share of 200 pixels.
    assert_we_hold(read_annotations(folder), ours, 2e-3)


def test_we_read_voc_of_supervision(supervision, ours, tmp_path):
    folder = tmp_path / "theirs"
    their_set(supervision, ours).as_pascal_voc(str(folder / "images"), str(folder / "Annotations"))
    # Supervision rounds to whole pixels.
    assert_we_hold(read_annotations(folder), ours, 0.5)


def assert_we_hold(read, ours, within):
    assert not [problem for problem in read.problems if problem.kind != "notes"]
    found = by_name(read)
    for name, each in by_name(ours).items():
        if name not in found:
            assert not len(each)
            continue
        assert found[name].labels == each.labels
        assert np.abs(found[name].boxes - each.boxes).max(initial=0) <= within
