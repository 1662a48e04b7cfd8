"""Video: a tracker, self-training, and sessions on a source.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.tracking.tracker import SelfTraining as SelfTraining
    from whet.tracking.tracker import TrackedFrame as TrackedFrame
    from whet.tracking.tracker import Tracker as Tracker

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.tracking.tracker": "SelfTraining TrackedFrame Tracker",
    },
)
