"""Video: a tracker, self-training, and sessions on a source.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.tracking.self_training import SelfTraining as SelfTraining
    from whet.tracking.tracker import TrackedFrame as TrackedFrame
    from whet.tracking.tracker import Tracker as Tracker

_HOME = {
    "SelfTraining": "whet.tracking.self_training",
    "TrackedFrame": "whet.tracking.tracker",
    "Tracker": "whet.tracking.tracker",
}

__all__ = ["SelfTraining", "TrackedFrame", "Tracker"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
