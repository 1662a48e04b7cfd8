"""Trainers: from patches and images to classifiers.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.training.config import TrainingConfig as TrainingConfig
    from whet.training.progress import Event as Event

_HOME = {
    "Event": "whet.training.progress",
    "TrainingConfig": "whet.training.config",
}

__all__ = ["Event", "TrainingConfig"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
