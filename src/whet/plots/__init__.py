"""Drawings of detections and evaluations; curves need matplotlib (extra `plots`), the rest only Pillow.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.plots.drawing import contact_sheet as contact_sheet
    from whet.plots.drawing import draw_boxes as draw_boxes
    from whet.plots.drawing import draw_detections as draw_detections
    from whet.plots.drawing import draw_evaluation as draw_evaluation
    from whet.plots.drawing import draw_tracked_frame as draw_tracked_frame
    from whet.plots.drawing import feature_sheet as feature_sheet
    from whet.plots.drawing import save_image as save_image
    from whet.plots.figure import draw_precision_recall as draw_precision_recall
    from whet.plots.figure import draw_results as draw_results
    from whet.plots.figure import draw_roc as draw_roc
    from whet.plots.figure import write_report as write_report

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.plots.drawing": "contact_sheet draw_boxes draw_detections draw_evaluation draw_tracked_frame "
        "feature_sheet save_image",
        "whet.plots.figure": "draw_precision_recall draw_results draw_roc write_report",
    },
)
