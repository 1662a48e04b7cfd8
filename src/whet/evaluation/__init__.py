"""How good detections are: overlap, matching, curves. Numbers only, no drawing.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.evaluation.evaluation import Evaluation as Evaluation
    from whet.evaluation.runs import EvaluationRun as EvaluationRun

_HOME = {
    "Evaluation": "whet.evaluation.evaluation",
    "EvaluationRun": "whet.evaluation.runs",
}

__all__ = ["Evaluation", "EvaluationRun"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
