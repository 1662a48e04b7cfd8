"""Fields of a JSON table that nobody has checked yet, taken out one by one, with what is wrong said by name."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from typing import Any

from whet.errors import ModelFileError

Table = dict[str, Any]


def parse_table(text: str, name: str) -> Table:
    """A JSON object from its text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the {name} is not JSON ({error}): the file is damaged, or not a detector") from error
    return as_table(parsed, name)


def as_table(value: object, name: str) -> Table:
    """The value itself, if it is a JSON object."""
    if not isinstance(value, dict):
        raise ModelFileError(f"the {name} is {_brief(value)}; expected a JSON object")
    return value


def check_keys(table: Table, required: Collection[str], optional: Collection[str] = (), *, where: str) -> None:
    """Refuse a table that lacks a key, or has one that would be lost when the detector is saved again."""
    missing, unknown = sorted(set(required) - set(table)), sorted(set(table) - {*required, *optional})
    if missing or unknown:
        raise ModelFileError(f"{where} lacks {missing} and has unknown {unknown}; expected {sorted(required)}")


def whole(value: object, least: int, most: int, name: str) -> int:
    """A whole number from `least` to `most`, both included.

    >>> whole(True, 0, 3, "count")
    Traceback (most recent call last):
    whet.errors.ModelFileError: count is True; expected a whole number from 0 to 3
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a whole number from {least} to {most}")
    return value


def finite(value: object, name: str) -> float:
    """A finite number."""
    # Compared, not converted: math.isfinite fails on a whole number of 400 digits.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a finite number")
    return float(value)


def one_of(value: object, choices: Collection[str], name: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise ModelFileError(f"{name} is {_brief(value)}; expected one of {sorted(choices)}")
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
