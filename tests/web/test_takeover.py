"""A trained model is taken over while people go on labelling: no label is lost, doubled, or of the wrong model."""

import threading
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from tests.cascades import bull_nodes
from tests.web.studios import MISSED, TIMEOUT, labels_for, opened

import whet
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import StageGoal
from whet.web import page_state, window_cache
from whet.web.studio import Rescan


@cache
def base():
    nodes = bull_nodes(np.random.default_rng(6), StageGoal(0.98, 1e-6))
    return DetectorBase(CascadeModel((12, 12), tuple(nodes)))


def retrained():
    """A detector of the bull that was trained on other samples than that of the project."""
    return Detector.from_base(base())


@contextmanager
def taken_over_meanwhile(monkeypatch, labeller, new=retrained):
    """Take a new model over while the first label of a thread has its records and waits to be written."""
    made, go_on = threading.Barrier(2), threading.Barrier(2)
    new_records, main = Detector.new_records, threading.current_thread()
    waiting = [True]

    def slow(self, *arguments, **options):
        records = new_records(self, *arguments, **options)
        if threading.current_thread() is not main and waiting:
            waiting.clear()
            made.wait(TIMEOUT)
            go_on.wait(TIMEOUT)
        return records

    monkeypatch.setattr(Detector, "new_records", slow)
    answers, errors = [], []

    def run(work):
        try:
            answers.append(work())
        except Exception as error:
            errors.append(error)

    threads = []

    def start(work):
        threads.append(threading.Thread(target=run, args=(work,)))
        threads[0].start()
        made.wait(TIMEOUT)

    yield start, answers
    labeller.use_trained(new(), "new")
    go_on.wait(TIMEOUT)
    threads[0].join(TIMEOUT)
    assert errors == []


def check_all_of_one_model(workspace):
    """All labels of the state are learned by its model, which is that of a replay."""
    ids = {label.id for image in workspace.gallery for label in workspace.labels_of(image.id)}
    assert workspace.detector.base_id == retrained().base_id
    assert {record.base_id for record in workspace.records()} == {workspace.detector.base_id}
    assert ids == workspace.record_ids() == {record.id for record in workspace.detector.records}
    fresh = retrained()
    fresh.add(workspace.records())
    assert workspace.detector.to_bytes() == fresh.to_bytes()


def labelled(workspace, key):
    return sorted((label.box, label.is_object) for label in workspace.labels_of(key))


@pytest.mark.parametrize("is_object", [False, True])
def test_a_label_made_for_the_model_before_is_learned_by_the_new_one(tmp_path, monkeypatch, is_object):
    with opened(tmp_path, n=2) as (workspace, keys):
        labeller = labels_for(workspace)
        first, other = (page_state.image(workspace, key).detections[-1].box for key in keys)
        labeller.label(keys[0], [first], False)
        with taken_over_meanwhile(monkeypatch, labeller) as (start, answers):
            start(lambda: labeller.label(keys[1], [other], is_object, author="ann", request="one"))
        assert labelled(workspace, keys[0]) == [(first, False)]
        assert labelled(workspace, keys[1]) == [(other, is_object)]
        check_all_of_one_model(workspace)
        assert workspace.labels[answers[0].added[0]].record.base_id == retrained().base_id
        labeller.label(keys[1], [other], is_object, author="ann", request="one")  # sent again: answered, not learned
        assert len(workspace.record_ids()) == 2
        workspace.undo()
        workspace.undo()
        assert {record.base_id for record in workspace.records()} == {workspace.detector.base_id}
        assert workspace.detector.base_id != retrained().base_id


def test_a_box_that_the_new_model_cannot_learn_stays_a_label(tmp_path, monkeypatch):
    """Windows of the face detector have 24 x 24 pixels."""
    small, large = (10.0, 10.0, 23.0, 23.0), (40.0, 30.0, 70.0, 60.0)
    with opened(tmp_path, n=1) as (workspace, (key,)):
        labeller = labels_for(workspace)
        with taken_over_meanwhile(monkeypatch, labeller, lambda: whet.load("face")) as (start, answers):
            start(lambda: labeller.label(key, [small, large], True))
        assert labelled(workspace, key) == [(small, True), (large, True)]
        assert len(answers[0].added) == 2
        assert [record.box for record in workspace.records()] == [large]
        labeller.label(key, [(11.0, 10.0, 24.0, 23.0)], True)  # as without a change of the model
        assert len(labelled(workspace, key)) == 3
        assert [record.box for record in workspace.records()] == [large]


def test_confirmed_boxes_are_those_that_were_shown_and_the_new_model_learns_them(tmp_path, monkeypatch):
    with opened(tmp_path, n=2) as (workspace, keys):
        labeller = labels_for(workspace)
        shown = sorted((found.box, True) for key in keys for found in page_state.image(workspace, key).detections)
        with taken_over_meanwhile(monkeypatch, labeller) as (start, _):
            start(lambda: labeller.confirm(keys))
        assert sorted(one for key in keys for one in labelled(workspace, key)) == shown
        assert all(workspace.is_reviewed(key) for key in keys)
        check_all_of_one_model(workspace)


def test_a_label_that_is_moved_or_removed_after_the_takeover_is_not_doubled(tmp_path):
    """The page knows it by the id that it had with the model before."""
    with opened(tmp_path, n=2) as (workspace, keys):
        labeller = labels_for(workspace)
        box = page_state.image(workspace, keys[0]).detections[0].box
        moved = tuple(side + 1 for side in box)
        (moving,) = labeller.label(keys[0], [box], True).added
        (removed,) = labeller.label(keys[1], [page_state.image(workspace, keys[1]).detections[-1].box], False).added
        labeller.use_trained(retrained(), "new")
        labeller.label(keys[0], [moved], True, replaces=[moving])
        labeller.unlabel(removed)
        assert labelled(workspace, keys[0]) == [(moved, True)]
        assert labelled(workspace, keys[1]) == []
        check_all_of_one_model(workspace)


@pytest.mark.parametrize("move", ["takeover", "undo"])
def test_a_model_that_changes_before_an_image_is_scanned_again_makes_no_image_missing(
    tmp_path, monkeypatch, caplog, move
):
    for name in ("MARGIN", "DEEP"):  # windows that a missed object needs are missing in the cache
        monkeypatch.setattr(window_cache, name, 0.0)
    with opened(tmp_path, n=2) as (workspace, keys):
        labeller, scan_again = labels_for(workspace), Rescan._scan_again
        labeller.label(keys[0], [MISSED], True)
        if move == "undo":
            labeller.use_trained(retrained(), "new")
        rescan, waiting = Rescan(workspace, []), [True]

        def meanwhile(self, key, state):
            if waiting:
                waiting.clear()
                workspace.undo() if move == "undo" else labeller.use_trained(retrained(), "new")
            scan_again(self, key, state)

        monkeypatch.setattr(Rescan, "_scan_again", meanwhile)
        while rescan.step():
            pass
        assert not waiting
        assert not workspace.gallery.missing
        assert rescan.view().done == len(keys)
        assert caplog.messages == []
