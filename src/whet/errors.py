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


class ModelFileError(WhetError, ValueError):
    """A file is not a detector, is damaged, was written by a later version, or says what cannot be."""


class CascadeFileError(WhetError, ValueError):
    """A file is not an OpenCV cascade, is damaged, or says what cannot be."""


class CannotExportError(WhetError, ValueError):
    """A cascade has what OpenCV's format has no words for."""


class EmptyClassifierError(WhetError, ValueError):
    """A cascade classifier was asked before a cascade was loaded."""


class DataNotFoundError(WhetError, FileNotFoundError):
    """A data set is neither on this machine nor to be had."""


class MissingExtraError(WhetError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed, and this needs it: pip install {package} (whet's extra '{extra}')"
        )
