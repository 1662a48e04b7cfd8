"""placeholder: replaced below"""
from __future__ import annotations
from collections.abc import Iterable
import numpy as np
from whet.cascade.detections import Detections
from whet.detector.detector import Detector
from whet.detector.records import Record


class Rescorer:
    def __init__(self, detector: Detector, threads=None):
        self._base = detector.copy(); self._records = {}; self._pixels = {}; self.threads=threads
        self._states = {}
    def __contains__(self, image): return image in self._pixels
    def scan(self, image, pixels): self._pixels[image]=pixels
    def add(self, records: Iterable[Record]):
        for r in records: self._records[r.id]=r
    def detections(self, image, ids):
        key=(image, ids)
        if key not in self._states:
            d=self._base.copy()
            d.replace_records([self._records[k] for k in ids if k in self._records], [])
            self._states[key]=d.detect(self._pixels[image], min_score=-np.inf, threads=self.threads)
        return self._states[key]
