"""A replacement for `cv2.CascadeClassifier` that needs no OpenCV, and OpenCV's XML files as input and output.

`from whet import opencv as cv2` gives `cv2.CascadeClassifier` with the methods, arguments and results of OpenCV 4: the
same windows and the same boxes from the same XML files. Only `CascadeClassifier` and its `CASCADE_*` flags are
replaced. There is no `cv2.data`, no `cv2.imread` and no drawing: give the path of the XML file, read images with
Pillow or another library, and draw with `whet.plots`.

Names are imported when they are first used, so that `import whet.opencv` is fast.
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.opencv.classifier import CascadeClassifier as CascadeClassifier
    from whet.opencv.xml_reader import read_opencv as read_opencv
    from whet.opencv.xml_writer import Exported as Exported
    from whet.opencv.xml_writer import write_opencv as write_opencv

# OpenCV 4 accepts these flags and ignores them; so does whet.
CASCADE_DO_CANNY_PRUNING = 1
CASCADE_SCALE_IMAGE = 2
CASCADE_FIND_BIGGEST_OBJECT = 4
CASCADE_DO_ROUGH_SEARCH = 8

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.opencv.classifier": "CascadeClassifier",
        "whet.opencv.xml_reader": "read_opencv",
        "whet.opencv.xml_writer": "Exported write_opencv",
    },
)
__all__ += [name for name in vars() if name.startswith("CASCADE_")]
