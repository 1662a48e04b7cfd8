"""Input and output: images, annotations, video, and detections as text.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.io.annotations.annotation import Annotations as Annotations
    from whet.io.annotations.formats import read_annotations as read_annotations
    from whet.io.annotations.formats import write_annotations as write_annotations
    from whet.io.image_files import as_grey as as_grey
    from whet.io.image_files import as_rgb as as_rgb
    from whet.io.image_files import find_images as find_images
    from whet.io.image_files import read_grey as read_grey
    from whet.io.video import VideoFrame as VideoFrame
    from whet.io.video import VideoWriter as VideoWriter
    from whet.io.video import read_frames as read_frames

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.io.annotations.annotation": "Annotations",
        "whet.io.annotations.formats": "read_annotations write_annotations",
        "whet.io.image_files": "as_grey as_rgb find_images read_grey",
        "whet.io.video": "VideoFrame VideoWriter read_frames",
    },
)
