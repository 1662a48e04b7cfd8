"""Values that a command cannot take, told as the wrong calls that they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from whet.errors import WhetError


@contextmanager
def wrong_call_if_value_error() -> Iterator[None]:
    """A ValueError of ours names an argument and what was expected: exit code 2, and no traceback."""
    try:
        yield
    except WhetError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
