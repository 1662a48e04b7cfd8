"""Stop reasons, events, and the intervals of the measured rates."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.patches import train_detector
from tests.crosses import CONFIG, WINDOW, crosses, pool, positives, train_cascade, write_images
from tests.detectors import from_bytes, to_bytes

from whet.detector.base import Provenance
from whet.evaluation.evaluation import image_interval, rate_interval
from whet.images.pyramid import Pyramid
from whet.io.image_files import read_grey
from whet.models.gslda.cascade_scan import scan_images
from whet.models.gslda.integral import IntegralStack
from whet.training.backgrounds import Mined
from whet.training.config import TrainingConfig
from whet.training.gslda import stop_by_held_out
from whet.training.preparation import split_images, split_in_runs
from whet.training.progress import (
    FitFinished,
    FitProgress,
    FitStarted,
    Mining,
    StopReason,
)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("negatives"))


@pytest.fixture(scope="module")
def training(images):
    events = []
    return *train_cascade(pool(), positives(), images, CONFIG, events.append), events


def test_the_estimate_is_that_of_the_images_kept_apart(training, images):
    cascade, _, result, _ = training
    _, kept_apart = split_images(images, CONFIG.validation_share, CONFIG.seed)
    levels = [level.image for path in kept_apart for level in Pyramid.from_image(read_grey(path), WINDOW).levels]
    scans = scan_images(cascade, levels)
    assert result.n_windows == sum(scan.n_tested for scan in scans)
    assert result.false_positive_rate == sum(map(len, scans)) / result.n_windows
    assert result.n_images == len(kept_apart)
    assert result.false_positive_interval[0] < result.false_positive_rate < result.false_positive_interval[1]


def test_the_detection_rate_is_that_of_the_positives_kept_apart(training):
    cascade, _, result, _ = training
    check = positives()[split_in_runs(500, CONFIG.validation_share, CONFIG.seed)[1]]
    assert result.detection_rate == cascade.accepts(check).mean()


def test_events_report_every_stage_in_order(training):
    _, nodes, result, events = training
    for number, node in enumerate(nodes):
        of_stage = [event for event in events if event.stage == number]
        started = next(event for event in of_stage if isinstance(event, FitStarted))
        added = [event for event in of_stage if isinstance(event, FitProgress)]
        finished = next(event for event in of_stage if isinstance(event, FitFinished))
        assert started.n_positives == 400
        assert [event.n_done for event in added] == list(range(1, len(node) + 1))
        assert added[-1].rates == finished.rates
        assert finished.rates[0] >= CONFIG.min_detection_rate
        assert (number in result.weak_stages) == (finished.rates[1] > CONFIG.max_false_positive_rate)
        mining = [event for event in of_stage if isinstance(event, Mining) and not event.held_out]
        assert bool(mining) == (number > 0)
        if mining:
            assert mining[-1].n_found == len(finished.samples.negatives)
            assert (mining[-1].n_tested, mining[-1].n_images) == (
                finished.mined.n_tested,
                finished.mined.n_images,
            )
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)


def test_the_time_left_is_unknown_first_and_then_estimated(training):
    *_, events = training
    assert all(event.seconds_left is None for event in events if event.stage < 1)
    assert all(event.seconds_left >= 0 for event in events if event.stage == 3 and isinstance(event, FitProgress))


def test_every_event_has_a_line(training):
    *_, result, events = training
    lines = [str(event) for event in events] + [str(result)]
    assert all("\n" not in line and len(line) > 20 for line in lines)
    assert any("mined" in line and "held-out images" in line for line in lines)
    assert any("false-positive rate" in line and "weak learners" in line for line in lines)


def judged(n_accepted, n_tested, n_places=100):
    places = np.zeros((n_places, 4), np.int32)
    return Mined(places, np.array([n_accepted, 0]), np.array([n_tested, n_tested]))


@pytest.mark.parametrize(
    ("found", "n_stages", "stalled", "why"),
    [
        (judged(10, 10**6), 3, None, StopReason.TARGET_REACHED),
        (judged(0, 10**6, 0), 3, None, StopReason.TARGET_REACHED),
        (judged(0, 1000, 0), 3, None, StopReason.IMAGES_EXHAUSTED),  # 0 of 2,000 does not show a rate of 1 in 100,000
        (judged(500, 10**6), 5, None, StopReason.ALL_STAGES),
        (judged(500, 10**6), 3, 0.97, StopReason.CANNOT_IMPROVE),
        (judged(500, 10**6), 3, None, None),
    ],
)
def test_what_held_out_windows_say(found, n_stages, stalled, why):
    verdict = stop_by_held_out(found, n_stages, TrainingConfig(max_stages=5, target_false_positive_rate=1e-5), stalled)
    assert (verdict and verdict[0]) == why


def test_intervals_by_the_image_hold_where_intervals_by_the_window_do_not(rng):
    """Images differ in how many windows they have accepted: 40 of them, and the rate of all."""
    rate, hits = 0.01, {"image": 0, "window": 0}
    for _ in range(300):
        accepted = rng.binomial(1000, rng.beta(0.5, 0.5 * (1 - rate) / rate, 40))
        has_contrast = np.full(40, 1000)
        for name, (low, high) in {
            "image": image_interval(accepted, has_contrast),
            "window": rate_interval(accepted.sum(), has_contrast.sum()),
        }.items():
            hits[name] += low <= rate <= high
    assert hits["image"] > 0.88 * 300
    assert hits["window"] < 0.6 * 300


def test_an_interval_is_never_narrower_than_that_of_independent_windows():
    even = image_interval(np.full(30, 7), np.full(30, 900))
    alone = rate_interval(210, 27_000)
    assert even[0] <= alone[0] < alone[1] <= even[1]
    assert image_interval(np.array([0, 0]), np.array([50, 50])) == rate_interval(0, 100)


def test_dropped_positives_are_those_that_earlier_stages_reject(images):
    events = []
    cascade, _, _ = train_cascade(
        pool(), positives(), images, replace(CONFIG, max_stages=2, drop_rejected_positives=True), events.append
    )
    train = positives()[split_in_runs(500, CONFIG.validation_share, CONFIG.seed)[0]]
    reach = cascade.stages[0].judge(IntegralStack.from_patches(train))[1]
    assert [event.n_positives for event in events if isinstance(event, FitStarted)] == [400, reach.sum()]
    assert reach.sum() < 400


def test_a_trained_detector_says_where_it_comes_from(images):
    origin = Provenance(data="crosses", licence="CC0-1.0", facts={"author": "tests"})
    config = replace(CONFIG, max_stages=2)
    detector, result = train_detector(pool(), positives(), images, config, origin=origin)
    said = from_bytes(to_bytes(detector)).only.base.provenance
    assert (said.data, said.licence, said.facts["author"]) == ("crosses", "CC0-1.0", "tests")
    assert said.goals["stage detection rate"] == CONFIG.min_detection_rate
    assert {name: said.facts[name] for name in ("positives", "images", "stages", "seed", "stop reason")} == {
        "positives": 500,
        "images": 8,
        "stages": 2,
        "seed": 5,
        "stop reason": "all stages",
    }
    assert said.facts["false-positive rate"] == result.false_positive_rate
    cascade, _, _ = train_cascade(pool(), positives(), images, config)
    new = crosses(100, np.random.default_rng(4))
    np.testing.assert_array_equal(detector.model.cascade.scores(new), cascade.scores(new))
