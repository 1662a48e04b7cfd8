"""Addresses keep nothing alive: what they point into belongs to the caller, until the kernel returns."""

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import whet._kernels

# Without glibc's caches of freed memory, two threads get the same few bytes at once if one of them has freed its own.
NO_CACHES = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"
SCANS = """
import numpy as np
import whet
from whet.models.gslda.cascade_scan import scan_images

cascade = whet.load("face").model.cascade
rng = np.random.default_rng(0)
images = [np.kron(rng.integers(0, 256, (40, 60)), np.ones((5, 5))).astype(np.uint8) for _ in range(6)]
counts = [(scan.n_tested, scan.n_evaluated, len(scan)) for scan in scan_images(cascade, images, threads=1)]
for _ in range(30):
    scans = scan_images(cascade, images, threads=4)
    assert counts == [(scan.n_tested, scan.n_evaluated, len(scan)) for scan in scans]
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the caches of glibc are switched off")
def test_threads_do_not_scan_in_memory_that_was_freed():
    environment = {**os.environ, "GLIBC_TUNABLES": NO_CACHES}
    command = [sys.executable, "-c", SCANS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def not_of_the_caller(source):
    """Arrays of which a function takes the address, though they are none of its arguments."""
    found = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        arguments = {each.arg for each in function.args.args}
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id == "address_of":
                array = call.args[0]
                while isinstance(array, ast.Attribute):
                    array = array.value
                if not isinstance(array, ast.Name) or array.id not in arguments:
                    found.append(f"{function.name}: {ast.unparse(call)}")
    return found


def test_addresses_are_taken_of_arguments_only():
    """numba frees a local array after its last use by name, and the use of an address is none."""
    files = sorted(Path(whet._kernels.__file__).parent.glob("*.py"))
    assert {file.name: not_of_the_caller(file.read_text()) for file in files} == {file.name: [] for file in files}
    assert sum("address_of(" in file.read_text() for file in files) >= 4
    assert not_of_the_caller("def f(a):\n b = a + 1\n return address_of(a.c), address_of(b), address_of(a[1:])") == [
        "f: address_of(b)",
        "f: address_of(a[1:])",
    ]
