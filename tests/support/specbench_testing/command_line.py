"""Runs a command line of `specbench` in this process: one of its own needs two seconds of CPU time for imports."""

from __future__ import annotations

import io
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from specbench_client.cli import exit_code


def specbench_here(*arguments: str, cwd: Path, **environment: str) -> CompletedProcess[str]:
    """Run `specbench ARGUMENTS` in a folder, as far as it does not depend on signals or on its own streams."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        code = exit_code([*arguments])
    printed = (each.buffer.getvalue().decode(errors="replace") for each in (out, err))
    return CompletedProcess(["specbench", *arguments], code, *printed)
