import warnings
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from tests.cascades import textured
from tests.drawn_sets import backgrounds, van_set
from tests.remote_store import http_store

from whet.errors import TrainingDataError
from whet.io.annotations.formats import read_annotations, write_annotations
from whet.training import preparation
from whet.training import train as module
from whet.training.config import TrainingConfig
from whet.training.preparation import prepare, prepare_class


def quick(annotations, **settings):
    settings = {"features": "haar,lbp", "ridge": 20.0, "copies_per_object": 1, "max_features": 50, **settings}
    return prepare(TrainingConfig(annotations, **settings))


def test_a_file_is_mined_once_however_it_is_spelled(tmp_path, monkeypatch):
    van_set(tmp_path, n=22)
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "vans.csv").open("a") as file:
        file.write("textures/texture0.png,,,,\n")  # annotated, and without a box
    prepared = quick("vans.csv", negatives=(str(tmp_path / "vans"), str(tmp_path / "textures")))
    files = [path.resolve() for path in prepared.images]
    assert len(files) == len(set(files)) == 22 + 12
    assert len(prepared.excluded) >= 22


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fewer than 200 different objects")
@pytest.mark.parametrize("features", ["channels", "haar,lbp"])
def test_images_at_urls_are_downloaded_once_for_their_size_and_once_for_their_objects(tmp_path, features):
    van_set(tmp_path, n=22)
    settings = {"features": features, "ridge": 20.0, "copies_per_object": 1, "max_features": 50}
    with http_store(tmp_path) as (url, asked):
        prepare_class(TrainingConfig(tmp_path / "vans.csv", [f"{url}/textures"], images=url, **settings))
    counts = Counter(request.removeprefix("GET /") for request in asked if request.endswith(".png"))
    assert {name.split("/")[0]: n for name, n in counts.items()} == {"vans": 2, "textures": 1}
    assert set(counts.values()) == {1, 2}


@pytest.mark.slow
def test_the_annotations_of_several_classes_are_read_once(tmp_path, monkeypatch):
    van_set(tmp_path, n=44)
    rows = (tmp_path / "vans.csv").read_text().splitlines()
    (tmp_path / "two.csv").write_text("\n".join(row.replace("van,", f"van{i % 2},") for i, row in enumerate(rows)))
    read = []
    for reader in (preparation, module):
        monkeypatch.setattr(reader, "read_annotations", lambda *a, **k: read.append(a) or read_annotations(*a, **k))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = module.train_classes(
            tmp_path / "two.csv", tmp_path / "textures", trees=4, negatives_per_round=50, copies_per_object=1
        )
    assert set(made.classes) == {"van0", "van1"}
    assert len(read) == 1


def test_images_of_other_parts_of_the_set_are_neither_trained_on_nor_mined(tmp_path):
    found = van_set(tmp_path, n=30)
    write_annotations(found, tmp_path / "yolo", "yolo")
    (tmp_path / "yolo" / "images" / "val").mkdir(parents=True)
    (tmp_path / "yolo" / "labels" / "val").mkdir(parents=True)
    images = sorted((tmp_path / "yolo" / "images").rglob("*.png"))
    kept = images[:6]
    for path in kept:
        label = next((tmp_path / "yolo" / "labels").rglob(f"{path.stem}.txt"))
        label.rename(tmp_path / "yolo" / "labels" / "val" / label.name)
        path.rename(tmp_path / "yolo" / "images" / "val" / path.name)
    config = next((tmp_path / "yolo").glob("*.yaml"))
    train = kept[0].parent.relative_to(tmp_path / "yolo")
    config.write_text(f"path: .\ntrain: {train}\nval: images/val\nnames: [van]\n")
    prepared = quick(config, negatives=(str(tmp_path / "yolo" / "images"),))
    assert len(prepared.annotations) == 24
    assert not {path.name for path in prepared.images} & {path.name for path in kept}


def test_a_window_of_ones_own_and_images_without_room_for_negatives(tmp_path):
    found = van_set(tmp_path, n=22)
    assert quick(tmp_path / "vans.csv", window=(30, 12)).choice.window == (12, 30)
    (tmp_path / "crops").mkdir()
    for number, image in enumerate(found.images):
        x1, y1, x2, y2 = image.boxes[0].astype(int).tolist()
        Image.open(image.path).crop((x1, y1, x2, y2)).save(tmp_path / "crops" / f"{number}.png")
    with pytest.raises(TrainingDataError, match="no images to take negatives from"):
        quick(tmp_path / "crops")
    backgrounds(tmp_path / "more", 3, 5)
    Image.fromarray(textured((50, 60), np.random.default_rng(0))).save(tmp_path / "more" / "a.png")
    assert len(quick(tmp_path / "crops", negatives=(str(tmp_path / "more"),)).images) == 4
