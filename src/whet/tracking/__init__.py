"""Video: a tracker, self-training, and sessions on a source.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, _HOME)
