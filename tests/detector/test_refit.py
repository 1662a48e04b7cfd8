"""A model is made again from kept samples: a function of their set, which holds corrections and undoes exactly."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tests.drawn_sets import van_set

import whet
from whet.corrections.kept import HELD_OUT, OBJECT, Crop, Crops, Kept, Region
from whet.detector.detector import Detector
from whet.errors import CannotLearnError, ModelFileError, RecordError
from whet.io.annotations.formats import read_annotations
from whet.io.image_files import as_rgb
from whet.training.learning import LearningInput, learn_from

pytestmark = pytest.mark.slow

SETTINGS = {"trees": 48, "negatives_per_round": 300, "copies_per_object": 3}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Images with vans, with their boxes: those of the training, and more."""
    folder = tmp_path_factory.mktemp("refit")
    van_set(folder, n=36)
    return folder, read_annotations(folder / "vans.csv").images


@pytest.fixture(scope="module")
def trained(images):
    folder, annotated = images
    from whet.io.annotations.annotation import Annotations
    from whet.io.annotations.formats import write_annotations

    write_annotations(Annotations(annotated[:20], ("van",)), folder / "first.csv")
    return whet.train(folder / "first.csv", **SETTINGS)


@pytest.fixture(scope="module")
def steps(images, trained):
    """Records of images that were not trained on: objects of completely annotated images, and false positives."""
    steps = []
    for image in images[1][20:26]:
        pixels = as_rgb(image.path)
        new = trained.new_records(pixels, image.objects, True, all_objects=image.objects, name=image.path.name)
        found = trained.detect(pixels, min_score=-np.inf).boxes
        from whet.images.boxes import box_iou

        wrong = found[~(box_iou(found, image.objects) >= 0.3).any(axis=1)][:1]
        if len(wrong):
            new += trained.new_records(pixels, wrong, False, name=image.path.name)
        steps.append([replace(record, time=0) for record in new])
    return steps


def test_a_training_keeps_samples(images, trained):
    base = trained.only.base
    assert len(base.crops.of(OBJECT)) == sum(len(image.objects) for image in images[1][:20])
    assert base.settings.trees == SETTINGS["trees"]
    assert len(base.crops.of(HELD_OUT)) <= 10 * base.settings.n_images
    assert not trained.needs_refit


def test_nothing_learned_is_the_model_of_the_training(trained):
    again = trained.copy()
    again.refit()
    assert again.to_bytes() == trained.to_bytes()


def test_a_refit_depends_on_the_set_alone(trained, steps):
    forward, backward, merged, other = (trained.copy() for _ in range(4))
    for part in steps:
        forward.add(part)
    for part in reversed(steps):
        backward.add(part[::-1])
        if part is steps[3]:
            backward.refit()
    for part in steps[:3]:
        merged.add(part)
    merged.refit()
    for part in steps[2:]:
        other.add(part)
    other.refit()
    both = other.copy()
    both.merge(merged)
    merged.merge(other)
    assert both.to_bytes() == merged.to_bytes()
    for threads, detector in enumerate((forward, backward, merged), start=1):
        assert detector.needs_refit
        detector.refit(threads=threads)
    assert forward.to_bytes() == backward.to_bytes() == merged.to_bytes()
    assert Detector.from_bytes(forward.to_bytes()).to_bytes() == forward.to_bytes()
    assert not forward.needs_refit


def test_unlearning_and_a_refit_is_as_if_it_was_never_learned(trained, steps):
    detector, never = trained.copy(), trained.copy()
    for part in steps[:3]:
        detector.add(part)
    never.add(steps[1])
    never.refit()
    detector.refit()
    detector.unlearn([record for part in (steps[0], steps[2]) for record in part])
    assert detector.needs_refit
    detector.refit()
    assert detector.to_bytes() == never.to_bytes()
    detector.unlearn(detector.records)
    assert detector.to_bytes() == trained.to_bytes()


def test_corrections_hold_before_and_after_a_refit(images, trained, steps):
    from whet.images.boxes import box_iou

    detector = trained.copy()
    wrong = [record for part in steps for record in part if record.kind == "correction" and not record.is_object]
    pixels = {image.path.name: as_rgb(image.path) for image in images[1]}
    assert wrong
    for part in steps:
        detector.add(part)
    for state in ("at once", "after the refit"):
        unsatisfied = {record.id for record in detector.unsatisfied}
        for record in wrong:
            found = detector.detect(pixels[record.name], min_score=-np.inf).boxes
            gone = not (box_iou(found, np.array([record.box])) >= 0.5).any()
            assert gone or record.id in unsatisfied, state
        detector.refit()
    assert set(detector.only.refit_of.satisfied) <= {record.content for record in detector.records}
    # A correction that comes after the refit holds at once, too.
    image = images[1][30]
    found = detector.detect(image.path, min_score=-np.inf)
    box = found.boxes[-1]
    update = detector.learn(image.path, box[None], False)
    left = detector.detect(image.path, min_score=-np.inf).boxes
    assert update.unsatisfied or not (box_iou(left, box[None]) >= 0.5).any()


def test_a_tiny_object_is_learned_although_no_window_fits_it(images, trained):
    detector = trained.copy()
    detector.learn(images[1][20].path, np.array([10.0, 10, 15, 13]), True)
    assert [record.kind for record in detector.records] == ["sample"]
    detector.refit()
    assert not detector.needs_refit


def test_a_region_gives_the_responses_of_the_image(images, trained):
    shape, image = trained.only, images[1][21]
    pyramid = shape.pyramid(as_rgb(image.path))
    index = pyramid.overlapping(image.objects[0], 0.4, shape.box_offset)
    region = Kept.from_bytes(Kept(region=Region.cut(shape.model, pyramid, index)).to_bytes()).region
    again = region.pyramid(shape.model)
    assert list(again.overlapping(image.objects[0], 0.4, shape.box_offset)) == list(index)
    assert region.covers(index, shape.window).all()
    ours, theirs = (shape.model.responses(part, index)[0].words for part in (pyramid, again))
    assert (ours == theirs).all()


def test_an_object_that_no_window_fits_is_kept_as_a_sample(images, trained):
    image = images[1][22]
    x1, y1, x2, _ = image.objects[0].tolist()
    flat = np.array([[x1, y1, x2, y1 + (x2 - x1) / 5]])
    (record,) = trained.new_records(as_rgb(image.path), flat, True)
    assert (record.kind, record.kind_name, len(record)) == ("sample", "object", 0)
    assert len(record.keeps.crops.of(OBJECT)) == 1


def test_crops_are_samples_of_the_next_refit_and_correct_nothing(images, trained, tmp_path):
    paths = []
    for number, image in enumerate(images[1][20:23]):
        x1, y1, x2, y2 = image.objects[0].astype(int).tolist()
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(as_rgb(image.path)[y1:y2, x1:x2]).save(paths[-1])
    run = learn_from(trained, LearningInput(crops=paths), refit=True, force=True)
    assert run.report.n_examples == 3
    assert {record.kind for record in run.detector.records} == {"sample"}
    assert run.is_refit_kept
    assert run.detector.only.model.votes.n_weak == trained.only.model.votes.n_weak
    run.detector.unlearn(run.detector.records)
    assert run.detector.to_bytes() == trained.to_bytes()
    with pytest.raises(CannotLearnError, match="count once"):
        learn_from(trained, LearningInput(crops=paths), weight=2)


def test_a_model_that_counts_examples_stays_as_it_is():
    face = whet.load("face")
    before = face.to_bytes()
    update = face.refit()
    assert update.before == update.after
    assert face.to_bytes() == before


def test_a_stripped_detector_finds_the_same_and_learns_no_more(images, trained, steps):
    detector = trained.copy()
    detector.add(steps[0])
    detector.refit()
    before = detector.detect(images[1][25].path)
    detector.strip()
    after = detector.detect(images[1][25].path)
    assert after.boxes.tolist() == before.boxes.tolist()
    assert after.scores.tolist() == before.scores.tolist()
    assert len(detector.to_bytes()) < len(trained.to_bytes())
    assert not detector.can_refit
    again = Detector.from_bytes(detector.to_bytes())
    assert [record.id for record in again.unsatisfied] == [record.id for record in detector.unsatisfied]
    found = again.detect(images[1][30].path, min_score=-np.inf)
    update = again.learn(images[1][30].path, found.boxes[-1:], False)
    left = again.detect(images[1][30].path, min_score=-np.inf)
    assert update.unsatisfied or not any(np.allclose(box, found.boxes[-1]) for box in left.boxes)
    assert not update.records[0].keeps.crops
    with pytest.raises(CannotLearnError, match="samples"):
        detector.refit()
    assert Detector.from_bytes(detector.to_bytes()).to_bytes() == detector.to_bytes()


def test_a_training_without_samples_keeps_none(images):
    detector = whet.train(images[0] / "first.csv", **SETTINGS | {"samples": "none", "trees": 8})
    assert detector.only.base.crops is None
    (record,) = detector.new_records(as_rgb(images[1][22].path), images[1][22].objects[:1], True)
    assert not record.kept


def test_a_refit_of_other_records_is_not_taken_over(trained, steps):
    made, other = trained.copy(), trained.copy()
    made.add(steps[0])
    made.refit()
    with pytest.raises(RecordError, match="nothing was changed"):
        other.take_refit(made)
    other.add(steps[1])
    other.add(steps[0])
    other.take_refit(made)
    assert other.only.refit_of is made.only.refit_of


@pytest.mark.parametrize("damage", ["cut", "bomb", "text", "picture"])
def test_damaged_samples_have_a_named_error(trained, damage):
    import zlib

    crop = next(iter(trained.only.base.crops))
    packed = Kept(Crops.from_iterable([crop])).to_bytes()
    packed = {"cut": packed[:-9], "bomb": zlib.compress(bytes(1 << 27)), "text": b"hello"}.get(damage, packed)
    read = crop._replace(data=b"RIFF....WEBP").pixels if damage == "picture" else lambda: Kept.from_bytes(packed)
    with pytest.raises(ModelFileError):
        read()


def test_a_crop_has_the_object_where_it_says(images):
    image = images[1][0]
    pixels, box = as_rgb(image.path), image.objects[0]
    crop = Crop.cut(OBJECT, bytes(32), pixels, box, box + np.array([-4, -4, 4, 4]), (32, 64))
    (x1, y1, x2, y2) = np.rint(crop.local(box[None])[0]).astype(int)
    inside = crop.pixels()[y1:y2, x1:x2].astype(float)
    from whet.images.boxes import cut_box

    wanted = cut_box(pixels, box, inside.shape[:2]).astype(float)
    assert abs(inside - wanted).mean() < 12


def test_a_merged_copy_without_samples_takes_none_away_and_gets_none(trained, steps):
    full, public = trained.copy(), trained.copy()
    for detector in (full, public):
        detector.add(steps[0])
    public.strip()
    both = full.copy()
    both.merge(public)
    assert both.to_bytes() == full.to_bytes()
    public.merge(full)
    assert not any(len(record.keeps.crops) for record in public.records)


def test_a_point_that_somebody_set_stays_after_a_refit(trained, steps):
    detector = trained.copy()
    detector.add(steps[0])
    detector.set_operating_point("strict", 7.5)
    detector.refit()
    assert detector.operating_points["strict"] == 7.5
    detector.set_operating_point("stricter", 9.5)
    detector.add(steps[1])
    detector.refit()
    assert (detector.operating_points["strict"], detector.operating_points["stricter"]) == (7.5, 9.5)
    detector.set_operating_point("strict", None)
    assert "strict" not in detector.operating_points


def test_undoing_and_redoing_corrections_keeps_the_refit(trained, steps):
    detector = trained.copy()
    wrong = [record for part in steps for record in part if record.kind == "correction"]
    detector.add(wrong)
    detector.refit()
    before = detector.to_bytes()
    detector.only.replace_records(remove=wrong)
    detector.only.replace_records(add=wrong)
    assert detector.to_bytes() == before


def test_an_object_of_an_extreme_shape_does_not_break_a_refit(trained):
    pixels = np.full((6000, 200, 3), 90, np.uint8)
    (record,) = trained.new_records(pixels, np.array([[50.0, 10.0, 54.0, 5900.0]]), True)
    assert max(record.keeps.crops.pixels_of(0).shape) <= 4096


@pytest.mark.parametrize("change", [{"trees": 2**40}, {"copies": 10**6}, {"window": (0, 0)}, {"margin": float("nan")}])
def test_settings_that_no_training_has_are_refused(trained, change):
    with pytest.raises(ValueError, match="settings"):
        replace(trained.only.base.settings, **change)


def test_a_hostile_region_is_refused_before_it_takes_memory():
    import zlib

    from safetensors.numpy import save

    arrays = {f"crops.{name}": array for name, array in Crops().arrays.items()}
    arrays |= {"region.shape": np.array([65536, 65536, 4]), "region.extents": np.array([[0.1, 0, 0, 9, 0, 9]])}
    arrays |= {"region.planes": np.array([[0.1, 0, 0]]), "region.cells.000": np.zeros((10, 2, 2), np.uint8)}
    with pytest.raises(ModelFileError):
        Kept.from_bytes(zlib.compress(bytes(save(arrays))))
