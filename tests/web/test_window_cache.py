"""Cached windows against scans: any set of corrections, on drawn scenes and on photographs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels import colourful, random_detector
from tests.detectors import bull_scene, judged_finder
from tests.web.studios import MISSED, labels_for, opened

import whet
from whet.detector.detector import Detector
from whet.errors import WhetError
from whet.images.boxes import box_iou
from whet.web import cached_windows, window_cache
from whet.web.studio import Rescan
from whet.web.window_cache import WindowCache

pytestmark = pytest.mark.slow


def corrections(detector, images, rng, n_drawn):
    """Records of detections as both labels, and of places that somebody calls an object."""
    found = []
    for image in images:
        for box in detector.detect(image, min_score=-np.inf).boxes[:4]:
            found += detector.new_records(image, [box], [bool(rng.random() < 0.3)])
        height, width = image.shape[:2]
        for _ in range(n_drawn):
            side = rng.uniform(0.2, 0.5) * height
            x, y = rng.uniform(0, width - side), rng.uniform(0, height - side)
            try:
                found += detector.new_records(image, [[x, y, x + side, y + side]], [bool(rng.random() < 0.7)])
            except WhetError:
                continue  # a place without contrast
    return found


def ids_of(records):
    return frozenset(record.id for record in records)


def check(cache, detector, images, chosen):
    """Detections, probabilities, estimates and unsatisfied corrections are those of a detector with that set.

    Where windows are missing in the cache, a scan adds them. Returns in how many images none was missing.
    """
    ids, twin = ids_of(chosen), detector.copy()
    twin.only.replace_records(chosen)
    assert cache.unsatisfied(ids) == {record.id for record in twin.unsatisfied}
    assert cache.estimate(ids) == twin.estimate
    n_covered = 0
    for key, image in enumerate(images):
        expected = twin.detect(image, min_score=-np.inf)
        if cache.is_covered(str(key), ids):
            n_covered += 1
        else:
            cache.take_fired(str(key), image, expected.windows)
        found = cache.detections(str(key), ids)
        np.testing.assert_array_equal(found.boxes, expected.boxes)
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    return n_covered


@pytest.fixture(
    scope="module",
    params=[((), True), ((0.0,), True), ((), False)],
    ids=["every window", "coarse pass", "usual margin"],
)
def drawn(request):
    """A detector of drawn bulls, its scenes, corrections, and a cache that knows all of them."""
    coarse_room, is_deep = request.param
    detector, images = judged_finder(default=0.5), [bull_scene(seed) for seed in range(3)]
    model = replace(detector.base.model, coarse_room=coarse_room)
    detector = Detector.from_base(replace(detector.base, model=model), reporting=detector.reporting)
    records = corrections(detector, images, np.random.default_rng(0), 3)
    cache = WindowCache(detector.only, threads=1)
    with pytest.MonkeyPatch.context() as patch:
        if not is_deep:
            patch.setattr(window_cache, "DEEP", window_cache.MARGIN)
        for known in (records[::2], records):  # some before the scan, some after it
            cache.add(known)
            for key, image in enumerate(images):
                cache.scan(str(key), image, ids_of(known))
    return cache, detector, images, records


@given(st.data())
@settings(max_examples=15)
def test_the_outcome_of_any_set_is_that_of_a_scan(drawn, data):
    cache, detector, images, records = drawn
    chosen = data.draw(st.lists(st.sampled_from(records), unique_by=lambda record: record.id))
    assert check(cache, detector, images, chosen) == len(images)


@given(st.data())
@settings(max_examples=15)
def test_images_that_differ_are_those_with_other_windows(drawn, data):
    cache, _, images, records = drawn
    sets = [frozenset(r.id for r in data.draw(st.lists(st.sampled_from(records)))) for _ in range(2)]
    pairs = {str(key): [cache.detections(str(key), ids).windows for ids in sets] for key in range(len(images))}
    expected = [
        key
        for key, (one, other) in pairs.items()
        if len(one) != len(other) or (one.scores != other.scores).any() or (one.boxes != other.boxes).any()
    ]
    assert cache.differing(*sets) == expected


@pytest.mark.slow
def test_photographs_and_the_face_detector():
    data = pytest.importorskip("skimage.data")
    detector, rng = whet.load("face"), np.random.default_rng(1)
    images = [data.astronaut()[:300, :400], data.coffee()[:200, :300], data.chelsea()[:250, :300]]
    records = corrections(detector, images, rng, 2)
    cache = WindowCache(detector.only)
    for key, image in enumerate(images):
        cache.scan(str(key), image)
    cache.add(records)
    for _ in range(6):
        chosen = [record for record in records if rng.random() < 0.4]
        check(cache, detector, images, chosen)
    near = [record for record in records if not record.is_object]  # what needs no lower thresholds is always exact
    assert check(cache, detector, images, near) == len(images)


@pytest.mark.slow
def test_channel_detectors_too():
    detector, rng = random_detector(), np.random.default_rng(2)
    images = [colourful((90, 120), rng) for _ in range(2)]
    records = corrections(detector, images, rng, 2)
    cache = WindowCache(detector.only)
    cache.add(records)
    for key, image in enumerate(images):
        cache.scan(str(key), image, ids_of(records))
    for _ in range(4):
        chosen = [record for record in records if rng.random() < 0.5]
        assert check(cache, detector, images, chosen) == len(images)


@pytest.fixture
def narrow(monkeypatch):
    """Scans without a margin: windows that a missed object needs are missing."""
    monkeypatch.setattr(window_cache, "MARGIN", 0.0)
    monkeypatch.setattr(window_cache, "DEEP", 0.0)


@pytest.mark.parametrize("most", [window_cache.MOST_DEEP, 0])
@pytest.mark.usefixtures("narrow")
def test_an_image_that_is_scanned_again_shows_what_a_scan_finds(tmp_path, monkeypatch, most):
    monkeypatch.setattr(window_cache, "MOST_DEEP", most)  # with 0, every scan with missed objects lets too many pass
    with opened(tmp_path, n=1) as (workspace, (key,)):
        rescan, pixels = Rescan(workspace, []), workspace.gallery.pixels(key)
        assert rescan.step()
        wrong = workspace.shown(key).boxes[-1].tolist()
        labels_for(workspace).label(key, [MISSED], True)
        assert not workspace.cache.is_covered(key, workspace.record_ids())
        labels_for(workspace).label(key, [wrong], False)
        for move in (lambda: None, workspace.undo, workspace.undo, workspace.redo):
            move()
            rescan.step()
            expected = workspace.detector.detect(pixels, min_score=workspace.min_score)
            np.testing.assert_array_equal(workspace.shown(key).boxes, expected.boxes)
            np.testing.assert_array_equal(workspace.shown(key).scores, expected.scores)


@pytest.mark.usefixtures("narrow")
def test_pages_hear_of_boxes_that_a_scan_corrects(tmp_path):
    with opened(tmp_path, n=2) as (workspace, keys):
        rescan = Rescan(workspace, [])
        while rescan.step():
            pass
        labels_for(workspace).label(keys[0], [MISSED], True)
        revision, n_shown = workspace.revision, len(workspace.shown(keys[1]))
        while rescan.step():
            pass
        assert len(workspace.shown(keys[1])) > n_shown
        assert workspace.revision > revision
        revision = workspace.revision
        assert not rescan.step()
        assert workspace.revision == revision


@pytest.mark.usefixtures("narrow")
def test_windows_below_the_minimum_score_are_no_news_for_pages(tmp_path):
    with opened(tmp_path, n=2) as (workspace, keys):
        rescan = Rescan(workspace, [])
        while rescan.step():
            pass
        labels_for(workspace).label(keys[0], [MISSED], True)
        workspace.set_min_score(1e6)
        revision, n_windows = workspace.revision, len(workspace.detections(keys[1]).windows)
        while rescan.step():
            pass
        assert len(workspace.detections(keys[1]).windows) > n_windows
        assert workspace.revision == revision


def test_levels_are_made_ahead_without_a_scan(drawn, monkeypatch):
    _, detector, images, _ = drawn
    trees, n_tested = random_detector(), []
    for one, image in ((detector, images[0]), (trees, colourful((90, 120), np.random.default_rng(0)))):
        scan = type(one.model).scan

        def counted(*arguments, scan=scan, **options):
            fired = scan(*arguments, **options)
            n_tested.append(fired.n_windows)
            return fired

        monkeypatch.setattr(type(one.model), "scan", counted)
        cache = WindowCache(one.only, threads=1)
        cache.prepare("0", image)
        levels = cache.levels("0").values()
        assert n_tested.pop() <= 8 * len(levels)
    reported = [level for level in levels if "cells" in level.kept]
    assert len(reported) == len(trees.only.pyramid(image).levels)


def test_shed_images_stay_covered_where_nothing_is_lowered(drawn, monkeypatch):
    _, detector, images, _ = drawn
    best = detector.detect(images[0], min_score=-np.inf)[0]
    weak = detector.new_records(images[0], best, True, min_score=float(best.scores[0]) + 1)
    cache = WindowCache(detector.only, threads=1)
    cache.add(weak)
    for key, image in enumerate(images):
        cache.scan(str(key), image)
    own = detector.model.votes.limits
    limits = cache._state(ids_of(weak)).effects.limits(detector.model.votes)
    assert (limits >= own).all()
    monkeypatch.setattr(window_cache, "MOST_BYTES", 0)
    cache.scan("2", images[2])
    if not detector.model.coarse_room:
        assert all(cache.is_covered(str(key), ids_of(weak)) for key in range(3))
    check(cache, detector, images, weak)


def test_where_few_windows_pass_all_that_a_correction_can_accept_is_kept(drawn, monkeypatch):
    _, detector, images, _ = drawn
    missed = detector.new_records(images[0], [MISSED], True)
    covered = []
    for most in (window_cache.MOST_DEEP, 0):
        monkeypatch.setattr(window_cache, "MOST_DEEP", most)
        cache = WindowCache(detector.only, threads=1)
        for key, image in enumerate(images):
            cache.scan(str(key), image)
        cache.add(missed)
        covered.append([cache.is_covered(str(key), ids_of(missed)) for key in range(len(images))])
        if most:
            assert check(cache, detector, images, missed) > 0
    assert all(covered[0])
    assert not any(covered[1])


def test_the_deep_margin_is_not_tried_where_too_many_windows_or_bytes_are_expected(drawn, monkeypatch):
    _, detector, images, _ = drawn
    cache = WindowCache(detector.only, threads=1)
    cache.scan("0", images[0])
    deep = len(cache._images["0"].windows)
    for name, value in (("MOST_DEEP", deep // 4), ("MOST_BYTES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(window_cache, name, value)
            one = WindowCache(detector.only, threads=1)
            for key in ("0", "1", "0"):
                one.scan(key, images[int(key)])
            assert len(one._images["1"].windows) < deep / 2
        one.scan("1", images[1])  # a scan of an image does not decide for others, or for ever
        assert len(one._images["1"].windows) > deep / 2


def places(windows):
    index = windows.index
    return set(zip(index.scale.tolist(), index.y.tolist(), index.x.tolist(), strict=True))


@pytest.mark.usefixtures("narrow")
def test_around_a_missed_object_later_corrections_accept_all_that_a_scan_finds(drawn):
    _, detector, images, records = drawn
    later = [*detector.new_records(images[0], [MISSED], True), *(record for record in records if record.is_object)]
    boxes = [[x, y, x + 40.0, y + 40.0] for x in range(0, 100, 20) for y in range(0, 80, 20)]
    n_windows = 0
    for box in boxes:
        try:
            first = detector.new_records(images[0], [box], True)
        except WhetError:
            continue  # a place without contrast
        cache, twin = WindowCache(detector.only, threads=1), detector.copy()
        cache.scan("0", images[0])
        cache.add(first)
        cache.look_around("0", images[0], first)
        cache.add(later)
        twin.add([*first, *later])
        found = twin.detect(images[0], min_score=-np.inf).windows
        around = box_iou(np.array([box]), detector.reporting.box_offset.boxes(found.boxes))[0] >= 0.5
        n_windows += int(around.sum())
        assert places(found.take(around)) <= places(cache.detections("0", ids_of([*first, *later])).windows)
    assert n_windows > 10


@pytest.mark.usefixtures("narrow")
def test_a_project_that_is_opened_again_shows_missed_objects_at_once(tmp_path):
    with opened(tmp_path, n=1) as (workspace, (key,)):
        labels_for(workspace).label(key, [MISSED], True)
        before = workspace.shown(key)
        assert (box_iou(np.array([MISSED]), before.boxes) >= 0.5).any()
    with opened(tmp_path, n=1) as (workspace, _):
        overlaps = box_iou(np.array([MISSED]), workspace.shown(key).boxes)
        assert (overlaps >= 0.5).any()


@pytest.mark.usefixtures("narrow")
def test_a_scan_is_kept_while_another_thread_looks_around(drawn):
    _, detector, images, _ = drawn
    (record,) = detector.new_records(images[0], [MISSED], True)

    class Interrupted(WindowCache):
        is_looking = False

        def _responses(self, *arguments):
            if self.is_looking:  # what another thread does meanwhile
                self.is_looking = False
                self.scan("0", images[0], ids_of([record]))
            return super()._responses(*arguments)

    cache = Interrupted(detector.only, threads=1)
    cache.scan("0", images[0])
    cache.add([record])
    assert not cache.is_covered("0", ids_of([record]))
    cache.is_looking = True
    cache.look_around("0", images[0], [record])
    assert check(cache, detector, images[:1], [record]) == 1


@pytest.mark.usefixtures("narrow")
def test_memory_is_bounded_by_images_that_were_not_asked_for_the_longest(drawn, monkeypatch):
    _, detector, images, records = drawn
    missed = detector.new_records(images[0], [MISSED], True)
    cache = WindowCache(detector.only, threads=1)
    cache.add([*missed, *records])
    for key, image in enumerate(images):
        cache.scan(str(key), image, ids_of(missed))
    cache.detections("0", ids_of(missed))
    most, n_windows = cache.n_bytes - 1, cache.n_windows
    monkeypatch.setattr(window_cache, "MOST_BYTES", most)
    cache.scan("2", images[2])
    assert cache.n_bytes <= most
    assert [cache.is_covered(str(key), ids_of(missed)) for key in range(3)] == [True, False, True]
    twin = detector.copy()
    twin.add(missed)
    # What is live stays: nothing changes with known corrections.
    found = cache.detections("1", ids_of(missed))
    np.testing.assert_array_equal(found.boxes, twin.detect(images[1], min_score=-np.inf).boxes)
    monkeypatch.setattr(window_cache, "MOST_BYTES", 0)
    cache.scan("1", images[1])
    assert all(str(key) in cache for key in range(3))
    assert cache.n_windows < n_windows
    n_covered = check(cache, detector, images, records)
    # Windows that a coarse pass leaves out are not live: only a scan knows which of them a correction accepts.
    assert n_covered == (0 if detector.base.model.coarse_room else len(images))


@pytest.mark.parametrize("limit", ["bytes", "windows"])
def test_windows_that_a_new_correction_accepts_stay_when_memory_is_short(drawn, monkeypatch, limit):
    """In the order of the studio: an image is scanned, a correction is new, memory runs short, the image is shown."""
    _, detector, images, _ = drawn
    missed = detector.new_records(images[0], [MISSED], True)
    twin = detector.copy()
    twin.add(missed)
    expected = twin.detect(images[1], min_score=-np.inf)
    cache = WindowCache(detector.only, threads=1)
    cache.scan("1", images[1])
    cache.take_fired("1", images[1], expected.windows)
    cache.add(missed)
    if limit == "bytes":
        monkeypatch.setattr(window_cache, "MOST_BYTES", 0)
        cache.scan("0", images[0])
    else:
        monkeypatch.setattr(cached_windows, "MOST_MERGED", 0)
        cache.scan("1", images[1])
    found = cache.detections("1", ids_of(missed))
    assert len(found) > len(detector.detect(images[1], min_score=-np.inf))
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    np.testing.assert_array_equal(found.scores, expected.scores)
