"""whet: small, fast object detectors that are trained on a few hundred images and corrected online, exactly.

Names are imported when they are first used, so that `import whet` costs next to nothing.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet import errors as errors
    from whet.cascade.detections import Detections as Detections
    from whet.detector.classes import MultiClassDetector as MultiClassDetector
    from whet.detector.detector import Detector as Detector
    from whet.detector.storage import load as load
    from whet.detector.storage import load_classes as load_classes
    from whet.evaluation.runs import evaluate as evaluate
    from whet.io.annotations.formats import read_annotations as read_annotations
    from whet.tracking.tracker import Tracker as Tracker
    from whet.training.adopt import adopt as adopt
    from whet.training.classes import train_classes as train_classes
    from whet.training.train import train as train

__version__ = "0.1.0"

_MODULES = {
    "Detections": "whet.cascade.detections",
    "Detector": "whet.detector.detector",
    "MultiClassDetector": "whet.detector.classes",
    "Tracker": "whet.tracking.tracker",
    "adopt": "whet.training.adopt",
    "evaluate": "whet.evaluation.runs",
    "load": "whet.detector.storage",
    "load_classes": "whet.detector.storage",
    "read_annotations": "whet.io.annotations.formats",
    "train": "whet.training.train",
    "train_classes": "whet.training.classes",
}

__all__ = [
    "Detections",
    "Detector",
    "MultiClassDetector",
    "Tracker",
    "__version__",
    "adopt",
    "errors",
    "evaluate",
    "load",
    "load_classes",
    "read_annotations",
    "train",
    "train_classes",
]


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("whet.errors")
    if name not in _MODULES:
        raise AttributeError(f"module 'whet' has no attribute {name!r}; available: {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported from their modules when they are first used."""

    def import_name(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return import_name, lambda: sorted({*vars(sys.modules[package]), *homes})
