"""The errors that whet raises by name; each message says what was got, what was expected and what to do."""


class WhetError(Exception):
    """Root of all errors that whet raises on purpose."""


class CannotUnlearnError(WhetError, ValueError):
    """What should be taken out was never learned: some count would fall below zero."""


class CannotLearnError(WhetError, ValueError):
    """A stage has weights but no statistics: there is nothing that a new sample could be added to."""


class CannotMergeError(WhetError, ValueError):
    """Two models do not share one base, so their statistics do not add up to anything."""


class ForgettingError(WhetError, ValueError):
    """Statistics that decay remember no single sample: nothing can be taken out of them or merged."""


class SingularScatterError(WhetError, ValueError):
    """The scatter matrix is not positive definite in floating point."""


class UnreadableImageError(WhetError, ValueError):
    """A file is not an image, is cut short, or is too large to be opened."""


class AnnotationError(WhetError, ValueError):
    """Annotations are not in the format that they are read as, could be in several, or cannot be written as asked."""


class VideoError(WhetError, ValueError):
    """A video cannot be opened, has no frames, or broke off; or one cannot be written."""


class CannotServeError(WhetError, OSError):
    """A page cannot be served at an address: its port is taken, or it is no address of this machine."""


class TrainingDataError(WhetError, ValueError):
    """Positives or images that no detector can be trained on."""


class ConfigError(WhetError, ValueError):
    """A training setting has a wrong value, or a settings file cannot be read."""


class CannotSeparateError(WhetError, ValueError):
    """Positives and negatives look alike to every feature, or nearly so."""


class CheckpointError(WhetError, ValueError):
    """A checkpoint is damaged, cannot be written, or belongs to other settings or other data."""


class MemoryBudgetError(WhetError, MemoryError):
    """The memory that training may take does not hold even one feature."""


class ModelFileError(WhetError, ValueError):
    """A file is not a detector, is damaged, was written by a later version, or says what cannot be."""


class DetectorNotFoundError(WhetError, FileNotFoundError):
    """There is no detector of that name, and no such file."""


class JournalError(WhetError, ValueError):
    """A journal is damaged, or its entries are not about this detector, or not in it."""


class BoxError(WhetError, ValueError):
    """A box is not one, is not in the image, or fits no window of the detector."""


class CascadeFileError(WhetError, ValueError):
    """A file is not an OpenCV cascade, is damaged, or says what cannot be."""


class CannotExportError(WhetError, ValueError):
    """A cascade has what OpenCV's format has no words for."""


class CannotConvertError(WhetError, ValueError):
    """An OpenCV cascade has what a detector of ours has not: tilted features, trees, or weights that are not whole."""


class EmptyClassifierError(WhetError, ValueError):
    """A cascade classifier was asked before a cascade was loaded."""


class DataNotFoundError(WhetError, FileNotFoundError):
    """A data set is neither on this machine nor to be had."""


class VideoNotFoundError(VideoError, DataNotFoundError):
    """There is no such file or folder to watch, or the folder has no images."""


class MissingExtraError(WhetError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed, and this needs it: pip install {package} (whet's extra '{extra}')"
        )
