"""The command that a detector was made by, for its header."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.model.provenance import Provenance


def origin(command: str) -> Provenance:
    """The whole command line, or the bare command if that names a folder of this machine."""
    from whet.model.provenance import Provenance

    try:
        return Provenance(command=shlex.join(["whet", *sys.argv[1:]]))
    except ValueError:
        return Provenance(command=f"whet {command}")
