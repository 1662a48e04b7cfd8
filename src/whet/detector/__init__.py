"""Detectors that learn: corrections, their records, the reference set and the model file.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
