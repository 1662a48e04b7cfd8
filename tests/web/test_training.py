"""Start from nothing: boxes, a training in a process of its own, and a detector that is corrected on."""

import time

import numpy as np
import pytest
from tests.web.studios import TIMEOUT, finder, labels_for, scene

from whet.errors import NotNowError, TrainingDataError
from whet.web import page_state
from whet.web.exports import annotated
from whet.web.quality import objects_of
from whet.web.training import OBJECTS_TO_TRAIN, Training
from whet.web.workspace import Workspace

BULLS = [[40, 30, 70, 60], [120, 70, 170, 120]]


def drawn(workspace, seeds):
    """Images in which both bulls were drawn, and that were confirmed."""
    for seed in seeds:
        image = workspace.add_image(scene(seed), f"{seed}.png")
        labels_for(workspace).label(image.id, BULLS, True)
        labels_for(workspace).confirm([image.id])


def test_few_boxes_are_not_enough_and_names_are_checked(tmp_path):
    with Workspace.open(tmp_path / "new.studio") as workspace:
        training = Training(labels_for(workspace))
        drawn(workspace, range(3))
        with pytest.raises(TrainingDataError, match=str(OBJECTS_TO_TRAIN)):
            training.start("bull")
        for name in ("", "  ", "a\nb", "/home/ann", "x" * 200):
            with pytest.raises(ValueError, match="expected a name"):
                training.start(name)
        assert training.cancel() is None


@pytest.mark.parametrize("model", [None, "finder"])
def test_ten_boxes_are_enough_to_train(tmp_path, model):
    with Workspace.open(tmp_path / "bull.studio", model and finder(), name="bull", threads=1) as workspace:
        training = Training(labels_for(workspace))
        for seed in range(4):
            labels_for(workspace).label(workspace.add_image(scene(seed), f"{seed}.png").id, BULLS, True)
        assert not training.can_start
        labels_for(workspace).label(workspace.add_image(scene(4), "4.png").id, BULLS, True)
        assert training.can_start
        with pytest.raises(TrainingDataError, match="0 of 5 images are confirmed"):
            training.start("bull")


def test_what_nobody_confirmed_is_neither_an_object_nor_background(tmp_path):
    with Workspace.open(tmp_path / "bull.studio", finder(), name="bull", threads=1) as workspace:
        reviewed, labelled = (workspace.add_image(scene(seed), f"{seed}.png").id for seed in (1, 2))
        workspace.add_image(scene(3), "untouched.png")
        workspace.set_min_score(20.0)
        labels_for(workspace).confirm([reviewed])
        labels_for(workspace).label(labelled, BULLS[:1], True)
        known = [objects_of(workspace.labels_of(key)) for key in (reviewed, labelled)]
        workspace.set_min_score(0.5)  # more detections are shown, which nobody has seen
        assert len(workspace.shown(reviewed)) > len(known[0])
        for number, options in enumerate(({"labelled": True}, {"reviewed": True})):
            made = annotated(workspace, tmp_path / str(number), **options)
            first, *others = made.images
            assert np.array_equal(first.objects, known[0])
            assert not len(first.ignored)  # the rest of a reviewed image is background
            for image in others:
                assert np.array_equal(image.objects, known[1])
                assert image.ignored.tolist() == [[0, 0, 200, 150]]
            assert len(others) == ("labelled" in options)


def wait_for(training, *states):
    for _ in range(TIMEOUT * 100):
        if training.job.state in states:
            return training.job
        time.sleep(0.1)
    raise AssertionError(training.job)


@pytest.mark.slow
def test_boxes_become_a_detector_that_can_be_corrected(tmp_path):
    with Workspace.open(tmp_path / "new.studio") as workspace:
        drawn(workspace, range(12))
        training, events = Training(labels_for(workspace)), []
        with workspace.events.subscribed(events.append):
            assert training.start("bull").state == "running"
            with pytest.raises(NotNowError, match="running"):
                training.start("bull")
            wait_for(training, "running")
            training.cancel()
            assert wait_for(training, "cancelled", "finished").state == "cancelled"
            training.start("bull")
            job = wait_for(training, "finished", "failed")
        assert job.state == "finished", job
        assert any(event.get("seconds_left") for event in events)
        assert workspace.detector.class_name == "bull"
        assert len(workspace.record_ids()) >= 2 * 12
        key = next(iter(workspace.gallery)).id
        assert page_state.image(workspace, key).detections
        before = workspace.detector.to_bytes()
        labels_for(workspace).label(key, [page_state.image(workspace, key).detections[-1].box], False)
        workspace.undo()
        assert workspace.detector.to_bytes() == before
        assert not (tmp_path / "new.studio.training").exists()
        # Once more, with labels since; undo gives the detector before it.
        labels_for(workspace).confirm([workspace.add_image(scene(s), f"{s}.png").id for s in (12, 13)])
        now = workspace.detector.to_bytes()
        training.start("bull")
        assert wait_for(training, "finished", "failed").state == "finished", training.job
        assert workspace.detector.to_bytes() != now
        n_labels = sum(len(workspace.labels_of(image.id)) for image in workspace.gallery)
        workspace.undo()
        assert workspace.detector.to_bytes() == now
        assert sum(len(workspace.labels_of(image.id)) for image in workspace.gallery) == n_labels
        workspace.checkout(node=workspace.history.nodes[workspace.history.current].parent)
        assert workspace.detector.to_bytes() == before
    with Workspace.open(tmp_path / "new.studio") as workspace:
        assert workspace.detector.to_bytes() == before
