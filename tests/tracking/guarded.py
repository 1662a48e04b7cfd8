"""A detector with a reference set."""

from dataclasses import replace
from functools import cache

import numpy as np
from tests.cascades import scene
from tests.detectors import bull_finder

from whet.corrections.reference import NEGATIVE, POSITIVE, Reference
from whet.detector.detector import Detector
from whet.images.pyramid import resized


@cache
def guarded_base():
    """The detector of the bull with a reference set of new bulls and of noise."""
    rng = np.random.default_rng(11)
    bulls = [scene((40, 40), [(5, 5, 24)], rng)[5:29, 5:29] for _ in range(400)]
    patches = np.stack([resized(bull, (12, 12)) for bull in bulls])
    others = rng.integers(0, 256, (400, 12, 12), dtype=np.uint8)
    base = bull_finder().base
    responses = base.model.cascade.respond(np.concatenate([patches, others]))[0]
    part = np.repeat([POSITIVE, NEGATIVE], 400).astype(np.uint8)
    reference = Reference(responses, part, np.ones(800, np.float32), np.arange(800, dtype=np.int32), 40)
    return replace(base, reference=reference)


def guarded_finder():
    return Detector.from_base(guarded_base())
