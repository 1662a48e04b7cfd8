"""The queue of images to review."""

from dataclasses import replace

import numpy as np
import pytest
from tests.web.studios import labels_for, opened

from whet.web import overview
from whet.web.review import Candidate, Expected, queue

OBJECT, ERROR, NOTHING = Expected(0.95, 0.05), Expected(0.5, 0.7), Expected(0.0, 0.01)


def reviewed_in_order(images, at_once=1):
    """Review the first image of the queue until none is left, as the page does, or several; returns their ids."""
    images, done = {image.id: image for image in images}, []
    while len(done) < len(images):
        for key in queue(list(images.values()))[:at_once]:
            done.append(key)
            images[key] = replace(images[key], is_reviewed=True)
    return done


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_objects_and_errors_take_turns_before_images_with_nothing(at_once):
    kinds = {"object": OBJECT, "error": ERROR, "nothing": NOTHING}
    images = [Candidate(f"{kind}{i}", 10 * i + j, kinds[kind]) for i in range(4) for j, kind in enumerate(kinds)]
    done = reviewed_in_order(images, at_once)
    kinds_of_first = [name[:-1] for name in done]
    assert 2 <= kinds_of_first[:4].count("object") <= 3 - (at_once == 1)
    assert kinds_of_first[:8].count("object") == kinds_of_first[:8].count("error") == 4
    assert sorted(done) == sorted(image.id for image in images)


def test_a_near_duplicate_of_a_reviewed_image_waits_for_all_other_groups():
    burst = [Candidate(f"frame{i}", 1, OBJECT) for i in range(3)]
    others = [Candidate(f"other{i}", 2 + i, NOTHING) for i in range(5)]
    done = reviewed_in_order([*burst, *others])
    assert [name.startswith("frame") for name in done] == [True] + [False] * 5 + [True] * 2


def test_many_objects_or_errors_are_not_worth_many_clicks():
    crowd, single = Expected(9.0, 4.0), Expected(0.9, 0.1)
    assert single.object_gain > crowd.object_gain
    assert Expected(0, 0.7).error_gain > Expected(0, 7.0).error_gain


def test_reviewed_images_come_last_and_boxes_that_are_labelled_are_decided(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        for key in keys:
            workspace.detections(key)
        first = overview.images(workspace, "queue", 0, 10).images[0]
        before = {row.id: row.expected_change for row in overview.images(workspace, "name", 0, 10).images}
        labels_for(workspace).confirm([first.id])
        rows = overview.images(workspace, "queue", 0, 10).images
        assert rows[-1].id == first.id
        assert sorted(row.id for row in rows) == sorted(keys)
        assert rows[-1].expected_change <= before[first.id]


def test_without_a_detector_the_queue_is_the_order_of_the_images(tmp_path):
    with opened(tmp_path, detector=None) as (workspace, _):
        by_name, by_queue = (overview.images(workspace, order, 0, 10).images for order in ("name", "queue"))
        groups = np.array([row.group for row in by_name])
        assert len(set(groups.tolist())) == len(groups)
        assert [row.id for row in by_queue] == [row.id for row in by_name]
