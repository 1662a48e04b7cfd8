"""Drawings of detections and evaluations; curves need matplotlib (extra `plots`), the rest only Pillow.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.plots.drawing import draw_boxes as draw_boxes
    from whet.plots.drawing import draw_detections as draw_detections
    from whet.plots.drawing import draw_evaluation as draw_evaluation
    from whet.plots.drawing import draw_tracked_frame as draw_tracked_frame
    from whet.plots.drawing import save_image as save_image
    from whet.plots.figure import draw_precision_recall as draw_precision_recall
    from whet.plots.figure import draw_results as draw_results
    from whet.plots.figure import draw_roc as draw_roc
    from whet.plots.figure import write_report as write_report
    from whet.plots.sheets import contact_sheet as contact_sheet
    from whet.plots.sheets import feature_sheet as feature_sheet

_HOME = {
    "contact_sheet": "whet.plots.sheets",
    "draw_boxes": "whet.plots.drawing",
    "draw_detections": "whet.plots.drawing",
    "draw_evaluation": "whet.plots.drawing",
    "draw_precision_recall": "whet.plots.figure",
    "draw_results": "whet.plots.figure",
    "draw_roc": "whet.plots.figure",
    "draw_tracked_frame": "whet.plots.drawing",
    "feature_sheet": "whet.plots.sheets",
    "save_image": "whet.plots.drawing",
    "write_report": "whet.plots.figure",
}

__all__ = [
    "contact_sheet",
    "draw_boxes",
    "draw_detections",
    "draw_evaluation",
    "draw_precision_recall",
    "draw_results",
    "draw_roc",
    "draw_tracked_frame",
    "feature_sheet",
    "save_image",
    "write_report",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
