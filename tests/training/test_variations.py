"""Many windows of one photograph."""

import numpy as np
import pytest

from whet.images.pyramid import resized
from whet.models.gslda.fitting import Variations

STILL = Variations(shift=0, scale=0, angle=0, noise=0, blur=0, mirror=False)


def photograph():
    """A bright square, left of the middle, on a grey ramp."""
    image = np.tile(np.arange(80, dtype=np.uint8), (80, 1))
    image[20:50, 15:35] = 200
    return image


def cut(how, n=50, seed=0, box=(10, 10, 58, 58)):
    return how.cut(photograph(), box, (24, 24), n, np.random.default_rng(seed))


def test_without_variation_a_window_is_the_box_in_the_windows_size():
    expected = resized(np.ascontiguousarray(photograph()[10:58, 10:58]), (24, 24))
    np.testing.assert_array_equal(cut(STILL, 2), [expected, expected])


def test_mirrored_windows_are_half_of_them_and_the_others_mirrored():
    plain = cut(STILL, 1)[0]
    same = [np.array_equal(one, plain) for one in cut(Variations(0, 0, 0, 0, 0), 200)]
    mirrored = [abs(one[:, ::-1].astype(int) - plain).max() <= 1 for one in cut(Variations(0, 0, 0, 0, 0), 200)]
    assert 70 < sum(same) < 130
    assert all(a or b for a, b in zip(same, mirrored, strict=True))


@pytest.mark.parametrize("what", ["shift", "scale", "angle", "noise", "blur"])
def test_each_variation_changes_windows_and_a_seed_fixes_them(what):
    how = Variations(**{**dict.fromkeys(("shift", "scale", "angle", "noise", "blur"), 0.0), what: 1.0, "mirror": False})
    how = Variations(0.1, 0, 0, 0, 0, mirror=False) if what == "shift" else how
    windows = cut(how)
    assert len({window.tobytes() for window in windows}) > 5
    np.testing.assert_array_equal(windows, cut(how))
    assert not np.array_equal(windows, cut(how, seed=1))


def test_a_box_outside_and_a_negative_spread_are_refused():
    with pytest.raises(ValueError, match="inside"):
        cut(STILL, box=(40, 40, 90, 60))
    with pytest.raises(ValueError, match="at least 0"):
        Variations(noise=-1)
