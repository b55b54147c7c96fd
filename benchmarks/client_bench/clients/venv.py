"""Virtual environments of the other clients: one each, in the cache, because their dependencies conflict."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from client_bench.clients.client import CACHE


@dataclass(frozen=True)
class Venv:
    """An environment with the pinned `package` and `beside`; if `bare`, without the dependencies of `package`.

    `interpreter`: the Python of the environment: a path, or a version for uv to find.
    """

    package: str
    pinned: str
    beside: tuple[str, ...] = ()
    bare: bool = False
    interpreter: str = sys.executable

    @property
    def folder(self) -> Path:
        return CACHE / f"{self.package}-{self.pinned}"

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def version(self) -> str | None:
        """The pinned version; None if it is not installed."""
        return self.pinned if any(self.folder.glob(f"lib/python3*/site-packages/{self.package}-*.dist-info")) else None

    def install(self) -> None:
        """Create it again. Raises CalledProcessError, with uv's output on stderr."""
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", self.interpreter, str(self.folder)], check=True)
        pip = [*uv, "pip", "install", "--quiet", "--python", str(self.python)]
        if self.beside:
            subprocess.run([*pip, *self.beside], check=True)
        alone = ["--no-deps"] if self.bare else []
        subprocess.run([*pip, *alone, f"{self.package}=={self.pinned}"], check=True)
