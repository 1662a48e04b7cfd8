"""Input and output: images, annotations, video, and detections as text.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.io.annotations.annotation import Annotations as Annotations
    from whet.io.annotations.formats import read_annotations as read_annotations
    from whet.io.annotations.formats import write_annotations as write_annotations
    from whet.io.images import as_grey as as_grey
    from whet.io.images import as_rgb as as_rgb
    from whet.io.images import find_images as find_images
    from whet.io.images import read_grey as read_grey
    from whet.io.video import VideoFrame as VideoFrame
    from whet.io.video import VideoWriter as VideoWriter
    from whet.io.video import read_frames as read_frames

_HOME = {
    "Annotations": "whet.io.annotations.annotation",
    "VideoFrame": "whet.io.video",
    "VideoWriter": "whet.io.video",
    "as_grey": "whet.io.images",
    "as_rgb": "whet.io.images",
    "find_images": "whet.io.images",
    "read_annotations": "whet.io.annotations.formats",
    "read_frames": "whet.io.video",
    "read_grey": "whet.io.images",
    "write_annotations": "whet.io.annotations.formats",
}

__all__ = [
    "Annotations",
    "VideoFrame",
    "VideoWriter",
    "as_grey",
    "as_rgb",
    "find_images",
    "read_annotations",
    "read_frames",
    "read_grey",
    "write_annotations",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
