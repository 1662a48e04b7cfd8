"""whet: train a small, fast object detector and sharpen it online, exactly, with every example.

Names are imported when first used, so that `import whet` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.cascade.detections import Detections as Detections
    from whet.detector.detector import Detector as Detector
    from whet.detector.detector import load as load
    from whet.estimators.baselines import AdaBoost as AdaBoost
    from whet.estimators.baselines import AsymBoost as AsymBoost
    from whet.estimators.baselines import OnlineBoosting as OnlineBoosting
    from whet.estimators.gslda import GSLDA as GSLDA
    from whet.estimators.online_gslda import OnlineGSLDA as OnlineGSLDA
    from whet.estimators.river import RiverClassifier as RiverClassifier
    from whet.training.train import train as train

__version__ = "0.1.0"

_HOME = {
    "AdaBoost": "whet.estimators.baselines",
    "AsymBoost": "whet.estimators.baselines",
    "Detections": "whet.cascade.detections",
    "Detector": "whet.detector.detector",
    "GSLDA": "whet.estimators.gslda",
    "OnlineBoosting": "whet.estimators.baselines",
    "OnlineGSLDA": "whet.estimators.online_gslda",
    "RiverClassifier": "whet.estimators.river",
    "load": "whet.detector.detector",
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
