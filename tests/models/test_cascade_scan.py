"""The scan against the cascade's own answers on every window, cut out one by one."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cascades import needed_learners, random_cascade, random_stage, scan, textured, windows_of

from whet.models.gslda import cascade_scan as scan_module
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.cascade_scan import Layout, compiled, scan_images


def check(cascade, image, step=1):
    """Return how many windows were found, once places, scores and counts are all as they should be."""
    patches, places = windows_of(image, cascade.window, step)
    scores = cascade.scores(patches)
    accepted = scores > -np.inf
    found = scan(cascade, image, step=step)
    assert np.array_equal(np.stack([found.y, found.x], axis=1), places[accepted])
    assert np.array_equal(found.scores, scores[accepted])  # to the last bit
    assert found.n_windows == len(patches)
    assert found.n_evaluated == needed_learners(cascade, patches)
    return len(found)


KINDS = [
    ("haar",),
    ("lbp",),
    ("haar", "haar", "haar"),
    ("lbp", "lbp"),
    ("haar", "lbp"),
    ("rectangle leaves",),
    ("lbp leaves", "lbp leaves"),
    ("haar", "rectangle leaves", "lbp leaves"),
]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_scan_gives_the_answers_of_the_cascade(kinds, soft, step, rng):
    like = windows_of(textured((60, 60), rng), (11, 8), 2)[0]
    cascade = random_cascade(kinds, (11, 8), [5, 9, 6][: len(kinds)], rng, soft=soft, like=like)
    assert check(cascade, textured((47, 61), rng), step) > 0


def test_rows_with_few_windows_left_go_on_together(rng):
    """One in twelve passes the first stage: most rows are gathered before the second."""
    like = windows_of(textured((60, 60), rng), (8, 8), 2)[0]
    for kinds in (("haar", "haar"), ("lbp", "haar"), ("haar", "lbp")):
        stages = [random_cascade((kind,), (8, 8), (6,), rng, passing=1 / 12, like=like).stages[0] for kind in kinds]
        easy = random_cascade(("haar",), (8, 8), (3,), rng, passing=0.9, like=like).stages
        assert check(Cascade((8, 8), (stages[0], *easy, *easy)), textured((70, 90), rng)) > 0
        check(Cascade((8, 8), tuple(stages)), textured((70, 90), rng))


def test_the_last_exit_counts_beside_the_threshold(rng):
    like = windows_of(textured((60, 60), rng), (8, 8), 2)[0]
    easy, hard = (random_stage("haar", (8, 8), 5, rng, like=like, passing=share) for share in (0.8, 0.4))
    strict = Stage(hard.features, hard.weak, hard.coef, hard.threshold - 1, np.append([-np.inf] * 4, hard.threshold))
    loose = Stage(hard.features, hard.weak, hard.coef, hard.threshold - 1)
    image = textured((40, 50), rng)
    found = [check(Cascade((8, 8), stages), image) for stages in ((strict, easy), (loose, easy), (easy, strict))]
    assert 0 < found[0] < found[1]
    assert found[2] > 0


@pytest.mark.parametrize("shape", [(10, 12), (10, 13), (11, 12), (11, 13), (10, 40), (40, 12), (13, 17)])
@pytest.mark.parametrize("step", [1, 2])
def test_images_hardly_larger_than_the_window(shape, step, rng):
    cascade = random_cascade(("haar", "lbp"), (10, 12), (3, 3), rng, passing=0.9)
    found = [check(cascade, rng.integers(0, 256, shape, dtype=np.uint8), step) for _ in range(5)]
    assert sum(found) > 0


@pytest.mark.parametrize("shape", [(9, 12), (10, 11), (9, 40), (40, 11), (1, 1), (0, 0), (0, 20)])
def test_images_smaller_than_the_window_have_none(shape, rng):
    found = scan(random_cascade(("haar",), (10, 12), (3,), rng), np.zeros(shape, dtype=np.uint8))
    assert (len(found), found.n_windows, found.n_tested, found.n_evaluated) == (0, 0, 0, 0)


def test_flat_windows_are_skipped(rng):
    cascade = random_cascade(("haar",), (10, 12), (3,), rng, min_sigma=0.0, passing=1.0)
    image = np.full((30, 33), 77, dtype=np.uint8)
    assert scan(cascade, image).n_tested == 0
    image[15, 16] = 78
    patches, _ = windows_of(image, (10, 12))
    inner = patches[:, 1:-1, 1:-1]
    assert scan(cascade, image).n_tested == (inner.max(axis=(1, 2)) > inner.min(axis=(1, 2))).sum() == 80


def test_bands_and_threads_change_nothing(rng, monkeypatch):
    cascade = random_cascade(("haar", "lbp"), (9, 9), (4, 5), rng)
    images = [textured(shape, rng) for shape in ((64, 50), (30, 70), (8, 8), (41, 41))]
    whole = scan_images(cascade, images, threads=1)
    assert len(whole[0]) > 0
    monkeypatch.setattr(scan_module, "WINDOWS_AT_ONCE", 0)
    for band in (1, 7, 96):
        monkeypatch.setattr(scan_module, "BAND", band)
        for threads in (1, 2, 5):
            for one, other in zip(whole, scan_images(cascade, images, threads=threads), strict=True):
                for name, value in vars(one).items():
                    assert np.array_equal(value, getattr(other, name)), name


def test_integrals_that_wrap_around_do_not_matter(rng, monkeypatch):
    """300 x 300 bright pixels have squares above 2^32: one band over all of them."""
    monkeypatch.setattr(scan_module, "BAND", 1000)
    cascade = random_cascade(("haar", "lbp"), (9, 9), (4, 5), rng)
    image = rng.integers(225, 256, (300, 300), dtype=np.uint8)
    image[::3] -= 60
    assert check(cascade, image) > 0


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_a_layout_puts_every_integral_where_its_offset_says(step, rng):
    layout = Layout.from_width(13, step)
    integral = rng.integers(0, 1000, (6, layout.line), dtype=np.uint32)
    flat = layout.arrange(integral)
    y, x = np.indices((6, 14))
    assert np.array_equal(flat[layout.offset(y, x)], integral[:, :14])
    # The corner of the next window, `step` columns on, is the next integral.
    assert np.array_equal(layout.offset(y, x + step) - layout.offset(y, x), np.ones_like(x))


def test_stages_are_compiled_once_for_a_layout_and_some_votes(rng):
    cascade = random_cascade(("haar",), (9, 9), (4,), rng)
    learners = compiled(cascade, Layout(50, 1), cascade.votes).learners
    assert compiled(replace(cascade, min_sigma=7.0), Layout(50, 1), cascade.votes).learners is learners
    assert compiled(cascade, Layout(50, 2), cascade.votes).learners is not learners
    assert compiled(cascade, Layout(50, 1), cascade.votes.unlimited).learners is not learners


@pytest.mark.parametrize("kinds", [("haar", "lbp"), ("haar", "rectangle leaves", "lbp leaves")])
def test_with_other_limits_a_scan_accepts_what_these_votes_accept(kinds, rng):
    cascade, image = random_cascade(kinds, (9, 9), (4, 5, 3)[: len(kinds)], rng, soft=True), textured((40, 45), rng)
    patches, places = windows_of(image, (9, 9))
    responses, has_contrast = cascade.respond(patches)
    for votes in (cascade.votes, cascade.votes.loosened(0.3), cascade.votes.unlimited):
        scores = np.where(has_contrast, votes.scores(responses), -np.inf)
        accepted = scores > -np.inf
        (found,) = scan_images(cascade, [image], votes=votes)
        assert np.array_equal(np.stack([found.y, found.x], axis=1), places[accepted])
        assert np.array_equal(found.scores, scores[accepted])  # to the last bit


def test_a_step_below_one_is_refused(rng):
    with pytest.raises(ValueError, match="step=0"):
        scan(random_cascade(("haar",), (9, 9), (4,), rng), np.zeros((20, 20), dtype=np.uint8), step=0)
