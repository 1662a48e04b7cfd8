"""The queue of images to review."""

from dataclasses import replace

import numpy as np
from tests.web.studios import labels_for, opened

from whet.web import page_state
from whet.web.page_state import Candidate, Expected, queue

FULL, POOR, NOTHING = Expected(2.0, 3.0, 0.5), Expected(0.9, 0.1), Expected(missed=0.01)


def reviewed_in_order(images):
    """Review the first image of the queue until none is left, as the page does; returns their ids."""
    images, done = {image.id: image for image in images}, []
    while len(done) < len(images):
        done.append(queue(list(images.values()))[0])
        images[done[-1]] = replace(images[done[-1]], is_reviewed=True)
    return done


def test_images_with_most_objects_and_errors_come_first():
    kinds = {"nothing": NOTHING, "full": FULL, "poor": POOR}
    images = [Candidate(f"{kind}{i}", 10 * i + j, kinds[kind]) for i in range(3) for j, kind in enumerate(kinds)]
    assert [name[:-1] for name in reviewed_in_order(images)] == ["full"] * 3 + ["poor"] * 3 + ["nothing"] * 3


def test_a_near_duplicate_of_a_reviewed_image_waits_for_all_other_groups():
    burst = [Candidate(f"frame{i}", 1, FULL) for i in range(3)]
    others = [Candidate(f"other{i}", 2 + i, NOTHING) for i in range(5)]
    done = reviewed_in_order([*burst, *others])
    assert [name.startswith("frame") for name in done] == [True] + [False] * 5 + [True] * 2


def test_a_missed_object_is_an_object_and_an_error():
    assert Expected(missed=1.0).gain == Expected(right=1.0, wrong=1.0).gain > Expected(right=1.0).gain


def test_reviewed_images_come_last_and_boxes_that_are_labelled_are_decided(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        for key in keys:
            workspace.detections(key)
        first = page_state.images(workspace, "queue", 0, 10).images[0]
        before = {row.id: row.expected_change for row in page_state.images(workspace, "name", 0, 10).images}
        labels_for(workspace).confirm([first.id])
        rows = page_state.images(workspace, "queue", 0, 10).images
        assert rows[-1].id == first.id
        assert sorted(row.id for row in rows) == sorted(keys)
        assert rows[-1].expected_change <= before[first.id]


def test_without_a_detector_the_queue_is_the_order_of_the_images(tmp_path):
    with opened(tmp_path, detector=None) as (workspace, _):
        by_name, by_queue = (page_state.images(workspace, order, 0, 10).images for order in ("name", "queue"))
        groups = np.array([row.group for row in by_name])
        assert len(set(groups.tolist())) == len(groups)
        assert [row.id for row in by_queue] == [row.id for row in by_name]
