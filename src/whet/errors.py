"""Exceptions and warnings of whet; each message says what was received, what was expected, and what to do.

>>> import whet
>>> try:
...     whet.load("nowhere.whet")
... except whet.errors.WhetError as error:
...     print(type(error).__name__)
DetectorNotFoundError
"""


class WhetError(Exception):
    """Base class of all exceptions of whet."""


class UnknownClassError(WhetError, KeyError):
    """A model has no class of that name."""

    def __str__(self) -> str:  # that of KeyError would quote the message
        return str(self.args[0]) if self.args else ""


class SeveralClassesError(WhetError, ValueError):
    """A model has several classes where one is expected."""


class SampleWeightError(WhetError, ValueError):
    """A sample weight is not a whole number of at least 0, or a count would no longer be exact."""


class CannotUnlearnError(WhetError, ValueError):
    """The samples to unlearn were never learned: a count would become negative."""


class CannotLearnError(WhetError, ValueError):
    """The model has weights but no statistics, so that it cannot learn new samples."""


class CannotMergeError(WhetError, ValueError):
    """Two models have different bases, so that their statistics cannot be merged."""


class ForgettingError(WhetError, ValueError):
    """Statistics with forgetting cannot be unlearned or merged."""


class SingularScatterError(WhetError, ValueError):
    """The scatter matrix is not positive definite in floating point."""


class UnreadableImageError(WhetError, ValueError):
    """A file or an array is not an image, is truncated, or is too large."""


class ImageMemoryError(UnreadableImageError):
    """An image, or what a model finds in it, needs more memory than a scan may take."""


class AnnotationError(WhetError, ValueError):
    """Annotations are invalid, have an ambiguous format, or cannot be represented in the output format."""


class VideoError(WhetError, ValueError):
    """A video cannot be opened, read or written, or has no frames."""


class CannotServeError(WhetError, OSError):
    """The web server cannot listen on the requested host and port."""


class ProjectError(WhetError, ValueError):
    """A studio project cannot be opened, is damaged, is in use, or belongs to another model."""


class ProjectClosedError(ProjectError):
    """A studio project is closed: its studio ends."""


class UnknownItemError(WhetError, LookupError):
    """A studio project has no image, label, state or branch of that name."""


class NotNowError(WhetError, RuntimeError):
    """A request is right, but not in the present state: there is no model, or another request is running."""


class TrainingDataError(WhetError, ValueError):
    """The training data has no usable objects or background."""


class ConfigError(WhetError, ValueError):
    """A training setting has a wrong value, or a settings file cannot be read."""


class CannotSeparateError(WhetError, ValueError):
    """No feature separates the positives from the negatives."""


class CheckpointError(WhetError, ValueError):
    """A checkpoint is damaged, cannot be written, or belongs to other settings or other data."""


class MemoryBudgetError(WhetError, MemoryError):
    """The memory limit of training is too small for a single feature."""


class ClusterError(WhetError, RuntimeError):
    """A cluster has no workers, cannot be reached, or its workers died one after the other."""


class ModelFileError(WhetError, ValueError):
    """A file is not a detector, is damaged, or was written by a newer version."""


class ModelNameError(WhetError, ValueError):
    """A model cannot be saved under a name that `load` takes for something else."""


class ModelChangedError(WhetError, RuntimeError):
    """The file of a model was changed by someone else since it was loaded."""


class CannotWriteError(WhetError, OSError):
    """A file cannot be written: the disk is full, read-only or damaged, or the file is write-protected."""


class DetectorNotFoundError(WhetError, FileNotFoundError):
    """No bundled detector and no file has this name."""


class WorseEstimateWarning(UserWarning):
    """The reference set of a detector estimates worse results after a correction than before."""


class RecordError(WhetError, ValueError):
    """A record of what was learned does not exist, is damaged, or belongs to another detector."""


class BoxError(WhetError, ValueError):
    """A box is invalid, is outside of the image, or matches no window of the detector."""


class CascadeFileError(WhetError, ValueError):
    """A file is not an OpenCV cascade, or is damaged."""


class CannotExportError(WhetError, ValueError):
    """A cascade cannot be represented in OpenCV's format."""


class CannotConvertError(WhetError, ValueError):
    """An OpenCV cascade cannot be represented as a detector, for example because of fractional weights."""


class EmptyClassifierError(WhetError, ValueError):
    """A cascade classifier was used before a cascade was loaded."""


class DataNotFoundError(WhetError, FileNotFoundError):
    """A file, a directory or a data set does not exist and cannot be downloaded."""


class RemoteError(DataNotFoundError):
    """A URL cannot be read: unknown protocol, wrong credentials, no such object, no network, too slow or too large."""


class VideoNotFoundError(VideoError, DataNotFoundError):
    """A video file or a directory of frames does not exist, or the directory has no images."""


class MissingExtraError(WhetError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; install it: pip install {package} (or pip install whet[{extra}])"
        )
