"""The operator's entry point when only the client is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
