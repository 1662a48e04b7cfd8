"""Detectors that learn: corrections, their records, the reference set and the model file.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.corrections.records import Record as Record
    from whet.corrections.reference import Estimate as Estimate
    from whet.detector.shape import ShapeDetector as ShapeDetector
    from whet.detector.state import Update as Update
    from whet.detector.storage import edit as edit

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.corrections.records": "Record",
        "whet.corrections.reference": "Estimate",
        "whet.detector.shape": "ShapeDetector",
        "whet.detector.state": "Update",
        "whet.detector.storage": "edit",
    },
)
