import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tests.drawn_sets import van_set

from whet._kernels.workers import Threads
from whet.features.haar import HaarPool
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.training.negatives import backgrounds_of
from whet.training.positives import cut_positives, window_of
from whet.training.preparation import RIDGES, _auc, _best, choose_ridge


def test_auc_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 20, 300).astype(float), rng.random(300) < 0.4
    assert np.isclose(_auc(scores[labels], scores[~labels]), roc_auc_score(labels, scores))


def test_another_ridge_needs_to_be_better_by_more_than_chance():
    default = RIDGES.index(DEFAULT_RIDGE)
    errors = np.full((4, len(RIDGES)), 0.05)
    assert _best(errors).ridge == DEFAULT_RIDGE
    other = (default + 1) % len(RIDGES)
    errors[:, other] = [0.01, 0.09, 0.02, 0.07]  # sometimes better, sometimes worse
    assert _best(errors).ridge == DEFAULT_RIDGE
    errors[:, other] = [0.03, 0.035, 0.03, 0.032]
    assert _best(errors).ridge == RIDGES[other]


@pytest.mark.slow
def test_it_is_chosen_from_images_and_the_same_again(tmp_path):
    found = van_set(tmp_path, n=30)
    choice = window_of(found.boxes)
    positives = cut_positives(found, choice, copies=3)
    pool = HaarPool.from_window(choice.window).sample(300, np.random.default_rng(0))
    where = backgrounds_of(found)
    choices = [
        choose_ridge(pool, positives.patches, positives.groups, list(where), excluded_boxes=where, workers=workers)
        for workers in (Threads(1), Threads(2))
    ]
    assert choices[0] == choices[1]
    assert set(choices[0].errors) == set(RIDGES)
    assert all(0 <= mean < 0.5 for mean, _ in choices[0].errors.values())
