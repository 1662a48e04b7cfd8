"""Numbers as people read them, and as JSON has them."""

from __future__ import annotations

from math import isfinite


def count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "box", "boxes"), count(1200, "picture")
    ('1 box', '1,200 pictures')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def number(value: float) -> float | None:
    """A finite number; else None, as JSON has no other.

    >>> number(float("nan")), number(0.5)
    (None, 0.5)
    """
    return value if isfinite(value) else None


def rounded(value: float | None) -> str:
    """To three places, or that there is none.

    >>> rounded(0.12345), rounded(None)
    ('0.123', 'none')
    """
    return "none" if value is None or not isfinite(value) else f"{value:.3f}"
