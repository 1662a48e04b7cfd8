"""Values of a file's JSON header and its arrays, checked; what is wrong is named in a `ModelFileError`."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import ModelFileError

Table = dict[str, Any]
# The dtype of an array, or those that it may have, and its shape.
Layout = tuple[np.dtype[Any] | tuple[np.dtype[Any], ...], tuple[int, ...]]


def check_layout(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, Layout]) -> None:
    """Raise `ModelFileError` unless these are the expected arrays.

    >>> check_layout({"limits": np.zeros(3)}, {"limits": (np.dtype(np.float64), (2,))})
    Traceback (most recent call last):
    whet.errors.ModelFileError: array limits is float64 (3,); by the header expected float64 (2,)
    """
    wrong = sorted(set(arrays) ^ set(expected))
    if wrong:
        fault = "is missing" if wrong[0] in expected else "does not belong there"
        raise ModelFileError(f"array {wrong[0][:60]!r} {fault}: arrays and header are not of one file; copy it again")
    for name, (dtype, shape) in expected.items():
        got, allowed = arrays[name], dtype if isinstance(dtype, tuple) else (dtype,)
        if got.dtype not in allowed or got.shape != shape:
            kinds = " or ".join(map(str, allowed))
            raise ModelFileError(f"array {name} is {got.dtype} {got.shape}; by the header expected {kinds} {shape}")


def flag(value: object, name: str) -> bool:
    """Return true or false, or raise `ModelFileError`."""
    if not isinstance(value, bool):
        raise ModelFileError(f"{name} is not true or false")
    return value


def pair(value: object, name: str, most: int) -> tuple[int, int]:
    """Return two whole numbers from 0 to `most`, or raise `ModelFileError`."""
    if not isinstance(value, list) or len(value) != 2:
        raise ModelFileError(f"{name}: expected two whole numbers")
    return whole(value[0], 0, most, name), whole(value[1], 0, most, name)


def parse_table(text: str, name: str) -> Table:
    """Parse a JSON object."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the {name} is not JSON ({error}); the file is damaged or not a detector") from error
    return as_table(parsed, name)


def as_table(value: object, name: str) -> Table:
    """Return the value if it is a JSON object, or raise `ModelFileError`."""
    if not isinstance(value, dict):
        raise ModelFileError(f"the {name} is {_brief(value)}; expected a JSON object")
    return value


def check_keys(table: Table, required: Collection[str], optional: Collection[str] = (), *, where: str) -> None:
    """Raise `ModelFileError` for missing keys, and for unknown keys, which saving the detector would lose."""
    missing, unknown = sorted(set(required) - set(table)), sorted(set(table) - {*required, *optional})
    if missing or unknown:
        raise ModelFileError(f"{where} lacks {missing} and has unknown {unknown}; expected {sorted(required)}")


def whole(value: object, least: int, most: int, name: str) -> int:
    """Return an integer from `least` to `most`, inclusive, or raise `ModelFileError`.

    >>> whole(True, 0, 3, "count")
    Traceback (most recent call last):
    whet.errors.ModelFileError: count is True; expected a whole number from 0 to 3
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a whole number from {least} to {most}")
    return value


def finite(value: object, name: str) -> float:
    """Return a finite number, or raise `ModelFileError`."""
    # A comparison, because math.isfinite raises for an integer of 400 digits.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a finite number")
    return float(value)


def one_of(value: object, choices: Collection[str], name: str) -> str:
    """Return a string that is one of the choices, or raise `ModelFileError`."""
    if not isinstance(value, str) or value not in choices:
        raise ModelFileError(f"{name} is {_brief(value)}; expected one of {sorted(choices)}")
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
