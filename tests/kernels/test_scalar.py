"""Without SIMD, kernels compute the same bytes."""

import os
import subprocess
import sys

import pytest
from tests.kernels.scans import digests

from whet._kernels import jit, llvm


def run_scans(**environment):
    command = [sys.executable, "-m", "tests.kernels.scans"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_scans_without_simd_find_the_same_windows_with_the_same_scores():
    version, *lines = run_scans(WHET_SIMD="0")
    assert version == "scalar"
    assert lines == list(digests())
    assert all(" 0 e3b0c4" not in line for line in lines)  # every scan accepts some windows


def test_internals_of_numba_that_are_gone_choose_the_scalar_version():
    code = "from numba import extending; del extending.register_model\n"
    code += "from whet._kernels.jit import HAS_SIMD; print(HAS_SIMD)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_both_files_have_one_width():
    assert jit.HAS_SIMD
    assert llvm.SIMD_WIDTH == jit.SIMD_WIDTH
