"""The command line as a user meets it: a real process."""

import subprocess
import sys


def whet(*arguments, **options):
    command = [sys.executable, "-m", "whet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
