"""Trainers: from patches and images to classifiers.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.training.config import TrainingConfig as TrainingConfig
    from whet.training.progress import Event as Event

_HOME = {
    "Event": "whet.training.progress",
    "TrainingConfig": "whet.training.config",
}

__all__ = ["Event", "TrainingConfig"]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
