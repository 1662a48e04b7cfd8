"""Sums of decimal fractions as they stand in files: 0.1 + 0.2 is 0.3, so that a box that is read back is the same."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

from whet.io.bounded_xml import LONGEST_NUMBER, NUMBER

# Beyond any picture; products of such numbers are still far from the largest float.
FARTHEST = 1e9


def added(a: float, b: float) -> float:
    """The sum of two numbers as they are written.

    >>> 0.1 + 0.2, added(0.1, 0.2), added(0.3, -0.1)
    (0.30000000000000004, 0.3, 0.2)
    """
    if a == int(a) and b == int(b):
        return a + b
    return float(Decimal(repr(float(a))) + Decimal(repr(float(b))))


def text_of(value: float) -> str:
    """The shortest text that is read as the same number; whole numbers without a point.

    >>> text_of(12.0), text_of(0.1)
    ('12', '0.1')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def number_in(text: str) -> float | None:
    """A number from its text; None for what is none, is not finite or lies beyond any picture.

    >>> number_in(" 1.5 "), number_in("nan"), number_in("1_0"), number_in("1e99")
    (1.5, None, None, None)
    """
    text = text.strip()
    if len(text) > LONGEST_NUMBER or not NUMBER.match(text):
        return None
    value = float(text)
    return value if isfinite(value) and abs(value) <= FARTHEST else None
