"""The seam between feature families and all that is trained on them."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from whet.features.integral import IntegralStack

Indices = NDArray[np.intp] | slice


class FeatureFamily(Protocol):
    """A pool of features on windows of one size: how to enumerate them and how to evaluate them."""

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the windows that the features look at."""

    @property
    def categories(self) -> int | None:
        """How many codes the values are drawn from; None if values are numbers that can be thresholded."""

    def __len__(self) -> int: ...

    def take(self, indices: Indices) -> Self:
        """The features at these indices, in this order."""

    def evaluate(self, stack: IntegralStack) -> NDArray[Any]:
        """Values (features, samples), each row contiguous: float32, or uint8 codes of categories."""


def check_window(window: tuple[int, int], stack: IntegralStack) -> None:
    """Refuse patches that are not of the size that the features were made for."""
    if stack.window != window:
        got, expected = " x ".join(map(str, stack.window)), " x ".join(map(str, window))
        raise ValueError(f"got patches of {got} pixels for features of a {expected} window: resize the patches")
