"""The operator's entry point when only the client is installed."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from specbench_operator.app import set_up_logs
from specbench_operator.settings import OperatorSettings

WITHOUT_KOPF = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "kopf":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from specbench_operator.__main__ import main
main()
"""


@pytest.mark.process
def test_the_operator_reports_a_missing_extra_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KOPF], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "specbench-operator: kopf is not installed: pip install 'specbench[operator]'\n"


@pytest.fixture
def log_levels() -> Iterator[None]:
    """Restores the levels and handlers of all loggers."""
    root = logging.getLogger()
    loggers = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    before = {each: (each.level, list(each.handlers), each.propagate) for each in loggers}
    yield
    for each, (level, handlers, propagate) in before.items():
        each.setLevel(level)
        each.handlers, each.propagate = handlers, propagate


LIBRARIES = ["kubernetes.client.rest", "botocore.auth", "botocore.endpoint", "urllib3.connectionpool"]


@pytest.mark.usefixtures("log_levels")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("level", ["DEBUG", "WARNING"])
def test_libraries_never_log_requests_and_answers(library: str, level: str) -> None:
    """At level DEBUG botocore logs the headers that it signs, the session token included."""
    set_up_logs(OperatorSettings(client_image="x", log_level=level))
    assert not logging.getLogger(library).isEnabledFor(logging.DEBUG)
    assert logging.getLogger(library).isEnabledFor(logging.INFO) is (level == "DEBUG")
    assert logging.getLogger("specbench_operator").isEnabledFor(logging.DEBUG) is (level == "DEBUG")
