"""Detectors that learn: corrections, their records, the reference set and the model file.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.detector.records import Record as Record
    from whet.detector.records import Update as Update
    from whet.detector.reference import Estimate as Estimate
    from whet.detector.storage import edit as edit

_HOME = {
    "Estimate": "whet.detector.reference",
    "Record": "whet.detector.records",
    "Update": "whet.detector.records",
    "edit": "whet.detector.storage",
}

__all__ = ["Estimate", "Record", "Update", "edit"]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
