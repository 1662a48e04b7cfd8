"""whet: train a small, fast object detector and sharpen it online, exactly, with every example.

Names are imported when first used, so that `import whet` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.detect.detections import Detections as Detections
    from whet.learn.boosting import AdaBoost as AdaBoost
    from whet.learn.boosting import AsymBoost as AsymBoost
    from whet.learn.gslda import GSLDA as GSLDA
    from whet.learn.online_boosting import OnlineBoosting as OnlineBoosting
    from whet.learn.online_gslda import OnlineGSLDA as OnlineGSLDA
    from whet.learn.river_adapter import RiverClassifier as RiverClassifier
    from whet.training.detector import Detector as Detector
    from whet.training.detector import load as load
    from whet.training.train import train as train

__version__ = "0.1.0"

_HOME = {
    "AdaBoost": "whet.learn.boosting",
    "AsymBoost": "whet.learn.boosting",
    "Detections": "whet.detect.detections",
    "Detector": "whet.training.detector",
    "GSLDA": "whet.learn.gslda",
    "OnlineBoosting": "whet.learn.online_boosting",
    "OnlineGSLDA": "whet.learn.online_gslda",
    "RiverClassifier": "whet.learn.river_adapter",
    "load": "whet.training.detector",
    "train": "whet.training.train",
}

# RiverClassifier needs an extra: it is there by name, but not for `from whet import *`.
__all__ = [
    "GSLDA",
    "AdaBoost",
    "AsymBoost",
    "Detections",
    "Detector",
    "OnlineBoosting",
    "OnlineGSLDA",
    "__version__",
    "load",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*_HOME, *__all__})
