"""How good detections are: overlap, matching, curves. Numbers only, no drawing.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.evaluation.advice import Advice as Advice
    from whet.evaluation.advice import LearningCurve as LearningCurve
    from whet.evaluation.error_kinds import BoxFit as BoxFit
    from whet.evaluation.error_kinds import ErrorCount as ErrorCount
    from whet.evaluation.error_kinds import ErrorKind as ErrorKind
    from whet.evaluation.error_kinds import ErrorReport as ErrorReport
    from whet.evaluation.error_kinds import count_errors as count_errors
    from whet.evaluation.evaluation import Evaluation as Evaluation
    from whet.evaluation.evaluation import evaluate_detections as evaluate_detections
    from whet.evaluation.runs import EvaluationRun as EvaluationRun

_HOME = {
    "Advice": "whet.evaluation.advice",
    "BoxFit": "whet.evaluation.error_kinds",
    "ErrorCount": "whet.evaluation.error_kinds",
    "ErrorKind": "whet.evaluation.error_kinds",
    "ErrorReport": "whet.evaluation.error_kinds",
    "Evaluation": "whet.evaluation.evaluation",
    "EvaluationRun": "whet.evaluation.runs",
    "LearningCurve": "whet.evaluation.advice",
    "count_errors": "whet.evaluation.error_kinds",
    "evaluate_detections": "whet.evaluation.evaluation",
}

__all__ = [
    "Advice",
    "BoxFit",
    "ErrorCount",
    "ErrorKind",
    "ErrorReport",
    "Evaluation",
    "EvaluationRun",
    "LearningCurve",
    "count_errors",
    "evaluate_detections",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
