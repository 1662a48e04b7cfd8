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

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.evaluation.advice": "Advice LearningCurve",
        "whet.evaluation.error_kinds": "BoxFit ErrorCount ErrorKind ErrorReport count_errors",
        "whet.evaluation.evaluation": "Evaluation evaluate_detections",
        "whet.evaluation.runs": "EvaluationRun",
    },
)
