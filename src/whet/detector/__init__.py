"""Detectors that learn: corrections, their records and journal, and the model file.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.detector.journal import Journal as Journal
    from whet.detector.records import Record as Record

_HOME = {
    "Journal": "whet.detector.journal",
    "Record": "whet.detector.records",
}

__all__ = ["Journal", "Record"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
