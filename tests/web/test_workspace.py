"""Labels, history, disputes, effects and causes, without HTTP."""

import csv
import threading

import numpy as np
import pytest
from tests.detectors import bull_file, judged_finder
from tests.web.studios import finder, labels_for, opened, scene

import whet
from whet.errors import BoxError, NotNowError, UnknownItemError
from whet.images.boxes import box_iou
from whet.web import exports, page_state, quality
from whet.web.labelling import SURE
from whet.web.schemas import ChangeView
from whet.web.workspace import Workspace


def weakest(workspace, key):
    """The last detection that an image shows: a false positive, in the drawn scenes."""
    return page_state.image(workspace, key).detections[-1].box


def test_a_false_positive_vanishes_and_undo_gives_the_former_bytes(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        before, box = workspace.detector.to_bytes(), weakest(workspace, keys[0])
        n = len(page_state.image(workspace, keys[0]).detections)
        answer = labels_for(workspace).label(keys[0], [box], False, author="ann")
        assert len(answer.image.detections) < n
        assert [(label.is_object, label.author, label.state) for label in answer.image.labels] == [
            (False, "ann", "holds")
        ]
        after = workspace.detector.to_bytes()
        assert after != before
        workspace.undo()
        assert workspace.detector.to_bytes() == before
        workspace.redo()
        assert workspace.detector.to_bytes() == after


def test_any_state_is_the_detector_that_learned_its_set_at_once(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller = labels_for(workspace)
        for key in keys:
            labeller.label(key, [weakest(workspace, key)], False)
        labeller.unlabel(sorted(workspace.record_ids())[0])
        workspace.checkout(node=2)
        labeller.label(keys[3], [[40, 30, 70, 60]], True)
        for node in sorted(workspace.history.nodes):
            fresh = judged_finder(default=0.5)
            fresh.add(workspace.records(node))
            workspace.checkout(node=node)
            assert workspace.detector.to_bytes() == fresh.to_bytes()


def test_a_request_that_comes_twice_is_learned_once(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller, box = labels_for(workspace), weakest(workspace, keys[0])
        first = labeller.label(keys[0], [box], False, request="r1")
        again = labeller.label(keys[0], [box], False, request="r1")
        assert (again.node, again.added) == (first.node, first.added)
        assert labeller.label(keys[0], [box], False, request="r2").node == first.node  # nothing new
        assert len(workspace.history.nodes) == 2
        workspace.undo(request="u1")
        workspace.undo(request="u1")
        assert workspace.history.current == 0


def test_opposite_labels_of_two_people_are_a_dispute_until_one_is_removed(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller, box = labels_for(workspace), page_state.image(workspace, keys[0]).detections[0].box
        (one,) = labeller.label(keys[0], [box], True, author="ann").added
        answer = labeller.label(keys[0], [box], False, author="ben")
        assert {label.state for label in answer.image.labels} == {"disputed"}
        assert page_state.summary(workspace, workspace.gallery[keys[0]]).n_disputed == 2
        answer = labeller.unlabel(one, author="ann")
        assert [(label.author, label.state != "disputed") for label in answer.image.labels] == [("ben", True)]
        # Somebody who changes their own mind has no dispute.
        answer = labeller.label(keys[0], [box], True, author="ben")
        assert [label.is_object for label in answer.image.labels] == [True]


def test_a_box_that_is_moved_is_one_step(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller = labels_for(workspace)
        old = labeller.label(keys[0], [[40, 30, 70, 60]], True).added
        labeller.label(keys[0], [[41, 30, 71, 60]], True, replaces=old)
        assert len(workspace.history.nodes) == 3
        assert len(page_state.image(workspace, keys[0]).labels) == 1


def test_confirmed_detections_are_labels_that_guard_and_undo_takes_the_review_back(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        n = [len(page_state.image(workspace, key).detections) for key in keys]
        labels_for(workspace).confirm(keys[:2], request="all")
        assert len(workspace.record_ids()) == n[0] + n[1]
        assert [workspace.is_reviewed(key) for key in keys] == [True, True, False, False]
        assert {found.label for found in page_state.image(workspace, keys[0]).detections} == {True}
        workspace.undo()
        assert not any(workspace.is_reviewed(key) for key in keys)


def test_what_nobody_judged_is_wrong_in_one_step(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        before = page_state.image(workspace, keys[0]).detections
        labeller = labels_for(workspace)
        labeller.label(keys[0], [before[0].box], True)
        labeller.confirm(keys[:1], is_object=False)
        labels = page_state.image(workspace, keys[0]).labels
        assert sorted(label.is_object for label in labels) == [False] * (len(before) - 1) + [True]
        assert None not in {found.label for found in page_state.image(workspace, keys[0]).detections}
        assert workspace.is_reviewed(keys[0])
        workspace.undo()
        assert len(page_state.image(workspace, keys[0]).detections) == len(before)
        assert not workspace.is_reviewed(keys[0])


def test_expected_harm_counts_labels_for_sure_and_others_by_probability():
    def changed(harm):
        return ChangeView("a", "a.png", "lost", (0.0, 0.0, 9.0, 9.0), 2.0, None, harm, harm in (2.0, -1.0))

    assert quality.expected_harm([changed(2.0), changed(-1.0), changed(0.3)]) == 1.3
    assert quality.expected_harm([]) == 0


def test_effects_name_what_changed_elsewhere_and_harm_to_confirmed_boxes_comes_first(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        for key in keys:
            workspace.detections(key)
        labeller = labels_for(workspace)
        node = labeller.label(keys[0], [weakest(workspace, keys[0])], False).node
        found = quality.effect(workspace, 0, node)
        assert found.summary.lost == sum(change.kind == "lost" for change in found.changes) > 0
        assert 0 <= found.summary.objects_lost <= found.summary.lost - 1  # what the user called wrong is no object
        assert found.summary.wrong_gained == 0 == found.summary.gained
        harms = [change.harm for change in found.changes]
        assert harms == sorted(harms, reverse=True)
        for change in found.changes:
            boxes = [
                workspace.detections(change.image, at).with_min_score(workspace.min_score).boxes for at in (0, node)
            ]
            overlaps = [box_iou(np.array([change.box]), part)[0].max(initial=0) for part in boxes]
            assert {"gained": overlaps[0] < 0.5, "lost": overlaps[1] < 0.5, "moved": min(overlaps) > 0.5}[change.kind]
        assert quality.effect(workspace, node, node).changes == []


def test_only_judged_boxes_of_a_locked_image_count(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        n = len(workspace.shown(keys[0]))
        quality.lock(workspace, keys[0], True)
        (row,) = quality.locked(workspace).images
        assert (row.n_judged, row.n_boxes, row.recall_now, row.false_positives_now) == (0, n, None, 0)
        right, wrong = workspace.shown(keys[0]).boxes[[0, -1]].tolist()
        labels_for(workspace).label(keys[0], [right], True)
        labels_for(workspace).label(keys[0], [wrong], False)
        (row,) = quality.locked(workspace).images
        assert (row.n_judged, row.recall_now) == (2, 1.0)
        assert 2 < row.n_boxes <= n
        assert (row.false_positives_before, row.false_positives_now) == (1, 0)
        labels_for(workspace).confirm([keys[0]])
        (row,) = quality.locked(workspace).images
        assert row.n_judged == row.n_boxes


def test_a_locked_image_shows_when_its_objects_are_lost(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labels_for(workspace).confirm([keys[0]])
        quality.lock(workspace, keys[0], True)
        workspace.undo()  # the labels would guard the objects
        truth = workspace.shown(keys[0]).boxes
        assert not quality.locked(workspace).is_worse
        for key in keys[1:]:
            labels_for(workspace).label(
                key, [found.box for found in page_state.image(workspace, key).detections[:3]], False
            )
        now, found = quality.locked(workspace), workspace.shown(keys[0])
        n_found = int((box_iou(truth, found.boxes) >= 0.5).any(axis=1).sum())
        assert n_found < len(truth)
        assert (now.recall_before, now.recall_now, now.is_worse) == (1.0, n_found / len(truth), True)
        quality.lock(workspace, keys[0], False)
        assert quality.locked(workspace).images == []


def test_blame_names_the_correction_that_removed_a_box(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller, answers, n_gone = labels_for(workspace), {}, 0
        for key in keys:
            box = weakest(workspace, key)
            answers[key] = box, labeller.label(key, [box], False).added[0]
        for key, (box, record) in answers.items():
            view = quality.blame(workspace, key, list(box))
            if view.box_score is not None:
                continue  # a contradiction to what is known: the label does not hold
            n_gone += 1
            without = workspace.record_ids() - {record}
            comes_back = workspace.cache.detections(key, without).with_min_score(workspace.min_score)
            is_cause = box_iou(np.array([box]), comes_back.boxes).max(initial=0) >= 0.5
            assert is_cause == (record in [cause.record_id for cause in view.causes] and not view.together)
            assert view.causes
        assert n_gone


def test_equal_errors_are_blamed_together(tmp_path):
    """Each of two labels alone removes the box, so that taking out one of them changes nothing."""
    with opened(tmp_path) as (workspace, keys):
        labeller, box = labels_for(workspace), weakest(workspace, keys[0])
        same = [box, tuple(side + 0.5 for side in box)]
        ids = {labeller.label(keys[0], [each], False).added[0] for each in same}
        view = quality.blame(workspace, keys[0], list(box))
        assert (view.box_score, view.together) == (None, True)
        assert {cause.record_id for cause in view.causes} == ids


def test_only_a_detection_that_is_nearly_certain_has_a_hint_when_it_is_marked_wrong(tmp_path):
    data = pytest.importorskip("skimage.data")
    with Workspace.open(tmp_path / "face.studio", whet.load("face"), name="face") as workspace:
        key = workspace.add_image(data.astronaut(), "a.png").id
        face, other = page_state.image(workspace, key).detections
        assert face.probability > SURE > other.probability
        assert labels_for(workspace).label(key, [other.box], False).hint is None
        assert labels_for(workspace).label(key, [face.box], True).hint is None
        assert "98 % sure of this box" in labels_for(workspace).label(key, [face.box], False).hint
        workspace.checkout(node=0)
        assert labels_for(workspace).confirm([key]).hint is None
        workspace.checkout(node=0)
        assert "98 % sure of 1 of the 2 boxes" in labels_for(workspace).confirm([key], is_object=False).hint


def test_the_effect_is_that_of_the_last_change_undo_redo_or_switch(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller = labels_for(workspace)
        first, second = (labeller.label(key, [weakest(workspace, key)], False).node for key in keys[:2])

        def shown():
            found = quality.effect(workspace)
            return found.from_node, found.to_node

        assert shown() == (first, second)
        workspace.undo()
        assert shown() == (second, first)
        assert quality.effect(workspace, None, second).from_node == first, "of another state: since its parent"
        workspace.add_branch("other")  # of the same state
        assert shown() == (second, first)
        workspace.checkout(branch="main")
        workspace.redo()
        assert shown() == (first, second)
        workspace.checkout(node=0)
        assert shown() == (second, 0)
        workspace.checkout(node=0)
        assert shown() == (second, 0)


@pytest.mark.slow
def test_planted_errors_of_the_face_detector_are_named(tmp_path):
    data = pytest.importorskip("skimage.data")
    with Workspace.open(tmp_path / "face.studio", whet.load("face"), name="face") as workspace:
        image = data.astronaut()
        key, labeller, rng = workspace.add_image(image, "a.png").id, labels_for(workspace), np.random.default_rng(0)
        labeller.label(key, [page_state.image(workspace, key).detections[1].box], False)
        n_right = n_planted = 0
        while n_planted < 4:
            node, before = workspace.history.current, workspace.shown(key).boxes
            side, x, y = rng.uniform(50, 100), rng.uniform(0, 400), rng.uniform(0, 380)
            box = [x, y, x + side, y + 1.11 * side]
            if box_iou(np.array([box]), before).max(initial=0) > 0.1:
                continue
            try:
                planted = labeller.label(key, [box], True).added
            except BoxError:
                continue  # a place without contrast
            new = [each for each in workspace.shown(key).boxes if box_iou(each[None], before).max(initial=0) < 0.5]
            if new:
                n_planted += 1
                causes = quality.blame(workspace, key, new[0].tolist()).causes
                n_right += causes[0].record_id == planted[0]
            workspace.checkout(node=node)
        assert n_right == n_planted


def test_curves_follow_what_was_reviewed(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        assert quality.curves(workspace).pr == []
        labels_for(workspace).label(keys[0], [weakest(workspace, keys[0])], False)
        labels_for(workspace).confirm(keys[:2])
        curves = quality.curves(workspace)
        assert curves.n_images == 2
        assert curves.pr[-1].recall == 1.0
        assert sum(curves.histogram.objects) > 0


def test_the_minimum_score_is_kept_and_checked(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        n = len(page_state.image(workspace, keys[0]).detections)
        workspace.set_min_score(page_state.image(workspace, keys[0]).detections[0].score)
        assert len(page_state.image(workspace, keys[0]).detections) < n
        with pytest.raises(ValueError, match="unknown operating point"):
            workspace.set_min_score("bold")
        with pytest.raises(ValueError, match="finite"):
            workspace.set_min_score(float("inf"))
    with opened(tmp_path, detector=None) as (workspace, _):
        assert workspace.min_score_name is None
        workspace.set_min_score("default")
        assert (workspace.min_score_name, workspace.min_score) == ("default", 0.5)


def test_corrections_that_the_model_has_are_there_and_can_be_removed(tmp_path):
    detector = finder()
    box = detector.detect(scene(0)).boxes[-1:]
    (record,) = detector.learn(scene(0), box, False, name="before.png")
    with opened(tmp_path, detector=detector) as (workspace, _):
        assert workspace.record_ids() == {record.id}
        labels_for(workspace).unlabel(record.id)
        assert workspace.detector.to_bytes() == finder().to_bytes()
    # One that was learned on the command line meanwhile comes along.
    detector.learn(scene(1), detector.detect(scene(1)).boxes[-1:], False)
    with opened(tmp_path, detector=detector) as (workspace, _):
        assert len(workspace.record_ids()) == 1
        assert record.id not in workspace.record_ids()


def test_without_the_effect_an_answer_has_the_same_boxes(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller = labels_for(workspace)
        wrong = page_state.image(workspace, keys[0]).detections[-1].box
        changes = [
            lambda effect: labeller.label(keys[0], [wrong], False, effect=effect),
            lambda effect: labeller.confirm(keys[1:], effect=effect),
            lambda effect: labeller.unlabel(sorted(workspace.record_ids())[0], effect=effect),
        ]
        for change in changes:
            answer = change(False)
            assert answer.effect is None
            node = answer.node
            workspace.undo()
            again = change(True)
            assert (again.image and again.image.detections) == (answer.image and answer.image.detections)
            assert again.effect == quality.summary(workspace, workspace.history.nodes[node].parent, node)


def test_without_a_model_boxes_are_kept_and_nothing_is_found(tmp_path):
    with Workspace.open(tmp_path / "new.studio") as workspace:
        key = workspace.add_image(scene(0), "0.png").id
        answer = labels_for(workspace).label(key, [[40, 30, 70, 60]], True)
        assert (answer.image.detections, len(answer.image.labels), answer.effect) == ([], 1, None)
        workspace.undo()
        assert page_state.image(workspace, key).labels == []
        with pytest.raises(NotNowError, match="no model"):
            _ = workspace.detector


def test_the_model_is_saved_in_its_file_unless_somebody_else_wrote_it(tmp_path):
    path = bull_file(tmp_path)
    with Workspace.open(tmp_path / "a.studio", whet.load(path), name="bull", model=str(path)) as workspace:
        assert workspace.is_saved
        key = workspace.add_image(scene(0), "0.png").id
        labels_for(workspace).label(key, [page_state.image(workspace, key).detections[-1].box], False)
        assert not workspace.is_saved
        exports.save_model(workspace)
        assert workspace.is_saved
        assert whet.load(path).to_bytes() == workspace.detector.to_bytes()
        with whet.detector.edit(path) as detector:
            detector.unlearn(detector.records)
        with pytest.raises(whet.errors.ModelChangedError):
            exports.save_model(workspace)
        assert whet.load(path).records == []


@pytest.mark.parametrize(
    ("key", "boxes", "error"),
    [
        ("nothing", [[1, 1, 9, 9]], UnknownItemError),
        (0, [[9, 9, 1, 1]], BoxError),
        (0, [[1e5, 1e5, 2e5, 2e5]], BoxError),
        (0, [[1, 1, 9, 9]] * 300, BoxError),
        (0, [[float("nan"), 1, 9, 9]], BoxError),
    ],
)
def test_labels_that_cannot_be_learned_change_nothing(tmp_path, key, boxes, error):
    with opened(tmp_path, n=1) as (workspace, keys):
        with pytest.raises(error):
            labels_for(workspace).label(keys[key] if key == 0 else key, boxes, True)
        assert len(workspace.history.nodes) == 1
        assert workspace.history.current == 0


def test_a_drawn_object_that_no_window_fits_is_kept_and_trained_on(tmp_path):
    with opened(tmp_path, n=1) as (workspace, (key,)):
        answer = labels_for(workspace).label(key, [[0, 0, 8, 3]], True)
        assert "too small" in answer.hint
        assert [label.box for label in workspace.labels_of(key)] == [(0.0, 0.0, 8.0, 3.0)]
        (image,) = exports.annotated(workspace, tmp_path / "out", labelled=True).images
        assert image.objects.tolist() == [[0, 0, 8, 3]]
        workspace.undo()
        assert not workspace.labels_of(key)


def test_numbers_of_objects_per_image_with_a_total(tmp_path):
    with opened(tmp_path, n=2) as (workspace, keys):
        labels_for(workspace).confirm([keys[0]])
        labels_for(workspace).label(keys[0], [[0, 0, 8, 3]], True)
        rows = list(csv.DictReader(exports.exported(workspace, "csv").content.decode().splitlines()))
        assert [row["reviewed"] for row in rows] == ["1", "0", "1"]
        numbers = [int(row["objects"]) for row in rows]
        assert numbers[0] == len(workspace.shown(keys[0])) + 1
        assert numbers[1] == len(workspace.shown(keys[1]))
        assert numbers[2] == numbers[0] + numbers[1]
        boxes, scores = rows[0]["boxes"].split(";"), rows[0]["scores"].split(";")
        assert len(boxes) == len(scores) == numbers[0]
        assert (boxes[-1], scores[-1]) == ("0.0 0.0 8.0 3.0", "")
        assert all(map(float, scores[:-1]))


def test_a_later_answer_of_the_same_person_replaces_the_earlier_on_any_page(tmp_path):
    with opened(tmp_path, n=1) as (workspace, (key,)):
        box, ann = page_state.image(workspace, key).detections[-1].box, "0123456789abcdef" * 2
        labels_for(workspace).label(key, [box], True, author=f"{ann}/11111111")
        answer = labels_for(workspace).label(key, [box], False, author=f"{ann}:Ann%20B./22222222")
        assert [(label.author, label.is_object) for label in answer.image.labels] == [(f"{ann}:Ann B.", False)]
        assert workspace.history.nodes[workspace.history.current].author == f"{ann}:Ann B."


def test_four_threads_with_labels_lose_none_and_end_in_the_state_of_a_replay(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labeller = labels_for(workspace)
        boxes = {key: [found.box for found in page_state.image(workspace, key).detections] for key in keys}

        def work(key):
            for number, box in enumerate(boxes[key][-3:]):
                labeller.label(key, [box], False, author=key, request=f"{key}{number}")

        threads = [threading.Thread(target=work, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wanted = sum(len(each[-3:]) for each in boxes.values())
        assert len(workspace.record_ids()) == wanted
        assert len(workspace.history.nodes) == wanted + 1
        fresh = finder()
        fresh.add(workspace.records())
        assert workspace.detector.to_bytes() == fresh.to_bytes()
