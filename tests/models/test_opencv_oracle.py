"""Values, codes and refusals are those of OpenCV to the last bit: each is put to a cascade of one stump."""

import numpy as np
import pytest

from whet.models.gslda.haar import HaarKind, HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool

cv2 = pytest.importorskip("cv2")

CASCADE = """<?xml version="1.0"?><opencv_storage><cascade><stageType>BOOST</stageType>
<featureType>{family}</featureType><height>24</height><width>24</width>
<stageParams><maxWeakCount>1</maxWeakCount></stageParams>
<featureParams><maxCatCount>{categories}</maxCatCount></featureParams><stageNum>1</stageNum>
<stages><_><maxWeakCount>1</maxWeakCount><stageThreshold>0.5</stageThreshold><weakClassifiers>
<_><internalNodes>0 -1 0 {test}</internalNodes><leafValues>1 0</leafValues></_></weakClassifiers></_></stages>
<features><_>{feature}</_></features></cascade></opencv_storage>"""


def accepts(patch, **parts):
    """Whether OpenCV's cascade of one stump finds the object in a patch that is one window."""
    storage = cv2.FileStorage(CASCADE.format(**parts), cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)
    cascade = cv2.CascadeClassifier()
    assert cascade.read(storage.getFirstTopLevelNode())
    return len(cascade.detectMultiScale(patch, 1.1, 0, 0, (24, 24), (24, 24))) == 1


def is_below(patch, rectangles, threshold):
    """Whether OpenCV finds the value of a Haar feature below the threshold."""
    rects = "".join(f"<_>{' '.join(map(str, rectangle))}.</_>" for rectangle in rectangles)
    feature = f"<rects>{rects}</rects><tilted>0</tilted>"
    test = np.format_float_scientific(threshold)
    return accepts(patch, family="HAAR", categories=0, test=test, feature=feature)


def opencv_rectangles(pool, i):
    """OpenCV has room for three rectangles: a 2 x 2 pattern is its box less twice two of its parts."""
    if pool.kind[i] != HaarKind.X2_Y2:
        return list(pool.parts(i))
    whole = pool.describe(i)[1:]
    return [(*whole, -1)] + [(*part[:4], 2) for part in pool.parts(i) if part[4] > 0]


@pytest.mark.parametrize("kind", HaarKind)
def test_haar_values(kind):
    rng = np.random.default_rng(kind)
    patches = rng.integers(0, 256, (12, 24, 24), dtype=np.uint8)
    pool = HaarPool.from_window((24, 24), [kind]).sample(12, rng)
    values = pool.evaluate(IntegralStack.from_patches(patches))
    for i, patch in enumerate(patches):
        value, rectangles = values[i, i], opencv_rectangles(pool, i)
        assert not is_below(patch, rectangles, value)
        assert is_below(patch, rectangles, np.nextafter(value, np.float32(np.inf)))


def test_pattern_codes():
    rng = np.random.default_rng(0)
    patches = rng.integers(0, 256, (20, 24, 24), dtype=np.uint8)
    pool = BlockPatternPool.from_window((24, 24)).take(rng.choice(8464, 20, replace=False))
    codes = pool.evaluate(IntegralStack.from_patches(patches))
    for i, patch in enumerate(patches):
        code, subset = int(codes[i, i]), np.zeros(8, dtype=np.uint32)
        subset[code // 32] = 1 << code % 32
        feature = "<rect>{} {} {} {}</rect>".format(*pool.describe(i))
        for chosen, found in ((subset, True), (~subset, False)):
            test = " ".join(map(str, chosen.view(np.int32)))
            assert accepts(patch, family="LBP", categories=256, test=test, feature=feature) == found


@pytest.mark.parametrize("contrast", [0, 10, 18, 19, 20, 21, 22, 30, 200])
def test_windows_that_are_not_looked_at(contrast):
    patch = np.zeros((24, 24), dtype=np.uint8)
    patch[:, ::2] = contrast  # sigma is half the contrast; OpenCV wants more than 10
    rectangles = [(0, 0, 12, 24, -1), (12, 0, 12, 24, 1)]
    assert is_below(patch, rectangles, np.float32(1e6)) == IntegralStack.from_patches(patch[None]).has_contrast[0]
