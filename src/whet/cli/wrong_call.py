"""Values that a command cannot take, and options that it has no use for, told as the wrong calls that they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from whet.errors import WhetError


def refuse(why: str, **options: object) -> None:
    """Refuse those of the options that were given: they would do nothing, and nobody would know.

    >>> refuse("without --show: there is no page then", port=None, quiet=False)
    >>> refuse("without --show: there is no page then", port=0, save_as=None)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    typer.BadParameter: got --port without --show: there is no page then
    """
    idle = [name for name, value in options.items() if not (value is None or value is False or value == [])]
    if idle:
        raise typer.BadParameter(f"got {', '.join('--' + name.replace('_', '-') for name in idle)} {why}")


@contextmanager
def wrong_call_if_value_error() -> Iterator[None]:
    """A ValueError of ours names an argument and what was expected: exit code 2, and no traceback."""
    try:
        yield
    except WhetError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
