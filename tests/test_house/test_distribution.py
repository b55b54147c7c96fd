"""How `make test` distributes the cluster's tests over processes: those of a file share their operator or release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = "pytester"

MAKEFILE = (Path(__file__).resolve().parents[2] / "Makefile").read_text(encoding="utf-8")
TESTS = """
import os, pathlib, pytest

@pytest.mark.parametrize("n", range(6))
def test_one(n):
    pathlib.Path(f"{__name__}-{os.environ['PYTEST_XDIST_WORKER']}").touch()
"""


@pytest.mark.process
def test_all_tests_of_a_file_run_in_one_process(pytester: pytest.Pytester) -> None:
    """Fails with releases of pytest and pytest-xdist that do not fit together, as with `--dist loadgroup`."""
    ((mode,),) = [
        re.findall(r"--dist (\w+)", line) for line in MAKEFILE.splitlines() if '-m "cluster and not alone' in line
    ]
    pytester.makepyfile(test_first=TESTS, test_second=TESTS)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess("-n", "2", "--dist", mode).assert_outcomes(passed=12)
    assert len(list(pytester.path.glob("test_*-gw?"))) == 2, "each file runs in one worker"
