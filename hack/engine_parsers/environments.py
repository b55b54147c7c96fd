"""Creates one environment per engine, with only the packages that its argument parser imports."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from specbench_api.spec.engine import EngineKind

HACK = Path(__file__).resolve().parent.parent
MARK = "installed"


def cache_folder() -> Path:
    """Return the folder of all environments: in XDG_CACHE_HOME, or in ~/.cache if it is unset or empty."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "specbench" / "parsers"


@dataclass(frozen=True)
class Environment:
    """The environment of one engine. `beside`: the packages its parser imports; `judge`: the module that runs it."""

    package: str
    pinned: str
    judge: str
    beside: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return cache_folder() / f"{self.package}-{self.pinned}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> list[str]:
        return [str(self.python), "-m", f"engine_parsers.{self.judge}"]

    def is_installed(self) -> bool:
        """Return whether it was created completely with the current packages."""
        mark = self.folder / MARK
        return mark.exists() and mark.read_text() == self._contents()

    def install(self) -> None:
        """Create it again; the marker is written last. Raises CalledProcessError, with uv's output on stderr."""
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", "3.11", str(self.folder)], check=True)
        pip = [*uv, "pip", "install", "--quiet", "--python", str(self.python)]
        subprocess.run([*pip, *self.beside], check=True)
        subprocess.run([*pip, "--no-deps", f"{self.package}=={self.pinned}"], check=True)
        (self.folder / MARK).write_text(self._contents())

    def _contents(self) -> str:
        return "\n".join([f"{self.package}=={self.pinned}", *self.beside]) + "\n"


_BOTH = (
    "torch==2.15.0", "transformers==5.23.0", "aiohttp==3.14.5", "msgspec==0.22.0", "pillow==13.0.0", "psutil==7.2.2",
    "pybase64==1.5.1", "pyzmq==27.3.0", "requests==2.34.2",
)  # fmt: skip

ENVIRONMENTS = {
    EngineKind.VLLM: Environment(
        "vllm",
        "0.33.0",
        "judge_vllm",
        (
            *_BOTH, "cachetools==8.0.1", "cbor2==6.2.1", "cloudpickle==3.1.2", "einops==0.8.2", "fastapi==0.165.0",
            "llguidance==1.9.1", "openai==3.54.0", "openai-harmony==0.0.8", "partial-json-parser==0.2.1.1.post7",
            "prometheus-client==0.26.0", "py-cpuinfo==9.0.0", "regex==2026.11.15", "tqdm==4.70.1", "uvloop==0.23.0",
            "xgrammar==0.2.8",
        ),
    ),
    EngineKind.SGLANG: Environment(
        "sglang", "0.5.23", "judge_sglang", (*_BOTH, "orjson==3.13.0", "starlette==1.10.0", "ipython==9.18.1")
    ),
}  # fmt: skip
