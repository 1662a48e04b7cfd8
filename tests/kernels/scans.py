"""Digests of scans and statistics, to compare kernels that run with SIMD with those that run without."""

import hashlib

import numpy as np
from tests.cascades import random_cascade, textured
from tests.opencv_files import haar_file, lbp_file

from whet._kernels.jit import HAS_SIMD
from whet.lda.discriminant import OnlineDiscriminant
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import bayes_crossing
from whet.models.gslda.cascade_scan import scan_images
from whet.opencv.classifier import scan_levels
from whet.opencv.xml_reader import parse_opencv

WINDOW = (11, 9)
SCALES = [np.float32(1), np.float32(2.2)]


def digest(*arrays):
    """A hash of the bytes of arrays, and how many entries the first one has."""
    joined = hashlib.sha256()
    for array in arrays:
        joined.update(np.ascontiguousarray(array).tobytes())
    return f"{len(arrays[0])} {joined.hexdigest()}"


def digests():
    """One line for each kernel that has two versions."""
    rng = np.random.default_rng(5)
    image = textured((60, 71), rng)
    for kinds in (["haar", "lbp"], ["rectangle leaves", "lbp leaves"]):
        cascade = random_cascade(kinds, WINDOW, [4, 9], rng, soft=True)
        for step in (1, 2, 3):
            (found,) = scan_images(cascade, [image], step=step)
            counts = found.n_windows, found.n_tested, found.n_evaluated
            yield f"{kinds} {step} {counts} {digest(found.scores, found.y, found.x)}"
    for make in (haar_file, lbp_file):
        cascade = parse_opencv(make(rng, (16, 14), [3, 6, 9], sizes=(1, 2, 3)).encode())
        boxes, scores = scan_levels(cascade, image, SCALES, 2)
        yield f"{make.__name__} {digest(scores, boxes)}"
    samples = rng.random((300, 70)) < rng.random(70)
    classes = [BinaryStatistics.from_samples(part.astype(np.uint8)) for part in (samples[:100], samples[100:])]
    online = OnlineDiscriminant(*classes, 70, rule=bayes_crossing, ridge=1.0)
    for x in samples[:20]:
        online.insert(x.astype(np.uint8), is_positive=False)
    yield f"discriminant {digest(online.coef, online.positive.C, online.negative.C)}"


if __name__ == "__main__":
    print("with SIMD" if HAS_SIMD else "scalar")
    print("\n".join(digests()))
