"""whet: small, fast object detectors that are trained on a few hundred images and corrected online, exactly.

Names are imported when they are first used, so that `import whet` costs next to nothing.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet import errors as errors
    from whet.detector.detector import Detector as Detector
    from whet.detector.storage import load as load
    from whet.evaluation.runs import evaluate as evaluate
    from whet.images.detections import Detections as Detections
    from whet.io.annotations.formats import read_annotations as read_annotations
    from whet.tracking.tracker import Tracker as Tracker
    from whet.training.adopt import adopt as adopt
    from whet.training.train import train as train
    from whet.training.train import train_classes as train_classes

__version__ = "0.1.0"

_MODULES = {
    "Detections": "whet.images.detections",
    "Detector": "whet.detector.detector",
    "Tracker": "whet.tracking.tracker",
    "adopt": "whet.training.adopt",
    "evaluate": "whet.evaluation.runs",
    "load": "whet.detector.storage",
    "read_annotations": "whet.io.annotations.formats",
    "train": "whet.training.train",
    "train_classes": "whet.training.train",
}

__all__ = [
    "Detections",
    "Detector",
    "Tracker",
    "__version__",
    "adopt",
    "errors",
    "evaluate",
    "load",
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


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    `homes` has, by module, the names that come from it, separated by spaces.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def import_name(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return sorted(modules), import_name, lambda: sorted({*vars(sys.modules[package]), *modules})
