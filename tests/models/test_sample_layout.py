"""Where samples lie in a bit row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.models.gslda.candidates import SampleLayout
from whet.models.gslda.weak_training import class_weights

CLASS_SIZES = st.sampled_from([1, 2, 63, 64, 65, 128, 130])


@given(CLASS_SIZES, CLASS_SIZES, st.randoms(use_true_random=False))
def test_positives_fill_their_own_words(n_positive, n_negative, random):
    labels = [True] * n_positive + [False] * n_negative
    random.shuffle(labels)
    layout = SampleLayout.from_labels(np.array(labels))
    assert len(set(layout.bit_of)) == len(labels)
    assert np.array_equal(layout.bit_of < 64 * layout.split, labels)
    assert layout.words == -(-n_positive // 64) + -(-n_negative // 64)
    weights = np.arange(1.0, len(labels) + 1)
    assert np.array_equal(layout.bit_weights(weights)[layout.bit_of], weights)
    assert layout.bit_weights(weights).sum() == weights.sum()


@pytest.mark.parametrize("labels", [[], [True], [False, False]])
def test_both_classes_are_needed(labels):
    with pytest.raises(ValueError, match="both classes are needed"):
        SampleLayout.from_labels(np.array(labels, dtype=bool))


@pytest.mark.parametrize("weights", [None, np.array([5.0, 1.0, 2.0, 0.0, 1.0])])
def test_balanced_classes_weigh_one_half_each(weights):
    layout = SampleLayout.from_labels(np.array([False, True, False, True, False]))
    shares = class_weights(layout, weights, balanced=True)
    of_samples = shares.weights if weights is not None else np.repeat(shares.weights, [2, 3])
    assert of_samples[:2].sum() / shares.total == 0.5
    assert of_samples[2:].sum() / shares.total == 0.5


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, np.nan]])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(ValueError, match="2 finite numbers"):
        class_weights(SampleLayout.from_labels(np.array([True, False])), np.array(weights), balanced=False)
