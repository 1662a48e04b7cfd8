"""Trainers: from patches and images to classifiers.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.training.config import TrainingConfig as TrainingConfig
    from whet.training.progress import Event as Event

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.training.config": "TrainingConfig",
        "whet.training.progress": "Event",
    },
)
