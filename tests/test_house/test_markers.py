"""How the suite is distributed over processes: the tests of one `xdist_group` run in the same process."""

from __future__ import annotations

import pytest

pytest_plugins = "pytester"

GROUPED = """
import os, pathlib, pytest

@pytest.mark.xdist_group("first")
@pytest.mark.parametrize("n", range(6))
def test_first(n):
    pathlib.Path(f"first-{os.environ['PYTEST_XDIST_WORKER']}").touch()

@pytest.mark.xdist_group("second")
@pytest.mark.parametrize("n", range(6))
def test_second(n):
    pathlib.Path(f"second-{os.environ['PYTEST_XDIST_WORKER']}").touch()
"""


@pytest.mark.process
def test_all_tests_of_a_group_run_in_one_process(pytester: pytest.Pytester) -> None:
    """Fails with releases of pytest and pytest-xdist that do not fit together: they ignore groups without an error."""
    pytester.makepyfile(GROUPED)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup").assert_outcomes(passed=12)
    workers = sorted(path.name for path in pytester.path.glob("*-gw?"))
    assert len(workers) == 2, f"each group runs in one worker, but these ran: {workers}"
