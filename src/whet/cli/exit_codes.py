"""What the exit codes of `whet` mean."""

from enum import IntEnum


class ExitCode(IntEnum):
    """0 is success, 2 a wrong call; Ctrl-C gives 130."""

    FAILED = 1
    DATA_MISSING = 3
    EXTRA_MISSING = 4
    SOME_SKIPPED = 5


CTRL_C = 130
