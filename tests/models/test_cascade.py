import numpy as np
import pytest
from tests.cascades import random_cascade, random_stage

from whet.models.gslda.cascade import Cascade

WINDOW = (9, 11)


def test_a_patch_is_accepted_if_it_has_contrast_and_passes_all_stages(rng):
    cascade = random_cascade(("haar", "lbp", "haar"), WINDOW, (4, 3, 5), rng)
    patches = rng.integers(0, 256, (500, *WINDOW), dtype=np.uint8)
    patches[::5] //= 20  # too little contrast
    passed = np.logical_and.reduce([stage.accepts(patches) for stage in cascade.stages])
    contrast = np.array([patch[1:-1, 1:-1].std() > 10 for patch in patches])
    assert 0 < (passed & contrast).sum() < passed.sum()
    assert np.array_equal(cascade.accepts(patches), passed & contrast)
    expected = np.where(passed & contrast, sum(stage.score(patches) for stage in cascade.stages[1:]), -np.inf)
    assert np.array_equal(cascade.scores(patches), expected)
    assert cascade.n_weak == 12


def test_what_cannot_be_a_cascade_is_refused(rng):
    stage = random_stage("haar", WINDOW, 3, rng)
    with pytest.raises(ValueError, match="at least one stage"):
        Cascade(WINDOW, ())
    with pytest.raises(ValueError, match="stage 0 is for windows"):
        Cascade((11, 9), (stage,))
    with pytest.raises(ValueError, match="66,051 pixels"):
        Cascade((300, 300), (stage,))
    with pytest.raises(ValueError, match="9 x 11 window"):
        Cascade(WINDOW, (stage,)).accepts(np.zeros((1, 12, 12), dtype=np.uint8))
