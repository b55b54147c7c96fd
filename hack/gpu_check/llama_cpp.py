"""llama.cpp from a source archive: what of it travels, the commands that compile it with CUDA, and its server."""

from __future__ import annotations

import tarfile
from pathlib import Path

ARCHIVE = "llama.cpp.tar.xz"
PREBUILT = "prebuilt"
"""Value of --llama-cpp for the server of the extra llama-cpp, which computes on the CPU."""
FOLDER = "llama.cpp"
NOT_COMPILED = frozenset(
    {".devops", ".github", "benches", "docs", "examples", "licenses", "media", "models", "pocs", "tests"}
)
"""Folders that the server does not need: most of the archive's size."""
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_CUDA_ARCHITECTURES": "90-real",  # H100 and H200 only
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_CUDA": "ON",
    "GGML_CUDA_FA": "OFF",  # FlashAttention kernels are most of the time of compiling
    "GGML_CUDA_NCCL": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}


def repack(sdist: Path, to: Path) -> int:
    """Write what the server is compiled from into a smaller archive, and return its size. Raises OSError, TarError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sdist) as source, tarfile.open(to, "w:xz") as archive:
        for member in source:
            _, *parts = member.name.split("/")
            if member.isfile() and len(parts) > 1 and parts[0] == FOLDER and parts[1] not in NOT_COMPILED:
                member.name = "/".join(parts)
                archive.addfile(member, source.extractfile(member))
    return to.stat().st_size


def compile_commands(source: Path, build: Path, cores: int) -> tuple[list[str], list[str]]:
    """Return the commands that configure and compile the server."""
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    configure = ["cmake", "-S", str(source), "-B", str(build), *options]
    return configure, ["cmake", "--build", str(build), "--target", "llama-server", f"-j{cores}"]


def server_of(build: Path) -> Path:
    """Return the path of the compiled server."""
    return build / "bin" / "llama-server"
