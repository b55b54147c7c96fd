"""What client and engine need, what of it an interpreter lacks, and a folder of wheels for a machine without network.

`requirements.py client|engine`, run in an interpreter, prints what it lacks, one line each; it needs only `packaging`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PINS = ("client", "research")
"""Files of requirements/; the second one includes the first."""
WHEELS_MAX_BYTES = 48 << 20
"""Maximum size of the wheels: a copy of this repository fits beside them into 64 MiB."""
NOT_NEEDED = frozenset({"datasets", "tiktoken"})
"""Dependencies of the client that are imported for other prompt sources and for prompt lengths only."""
ENGINE_DEPENDENCIES = frozenset({"aiohttp", "click", "pydantic", "packaging", "pyyaml"})
"""Dependencies of the project that the research runtime imports."""
_IN_TORCH_IMAGES = """
aiohappyeyeballs aiohttp aiosignal attrs contourpy cycler fonttools frozenlist hf-xet huggingface-hub kiwisolver
matplotlib mpmath multidict networkx numpy pandas pillow propcache pyarrow pyparsing safetensors scipy setuptools sympy
tokenizers torch triton xxhash yarl
"""
IN_TORCH_IMAGES = frozenset(_IN_TORCH_IMAGES.split())
"""Large packages of images with torch and a scientific stack, and what they need; also every nvidia-… and cuda-…

Small packages are taken along, because the versions there are unknown.
"""
GLIBC = range(17, 40)
"""manylinux_2_N tags that pip is asked for: it compares N exactly."""
_PIN = re.compile(r"^[A-Za-z0-9]")
_GPU_LIBRARY = re.compile(r"^(nvidia|cuda)-")


class BundleError(Exception):
    """The wheels cannot be had; the message gives the reason and a remedy."""


def needs(role: str) -> list[str]:
    """Return the requirements of `client` or `engine`, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours: dict[str, str] = {canonicalize_name(Requirement(one).name): one for one in project["dependencies"]}
    if role == "client":
        return [text for name, text in ours.items() if name not in NOT_NEEDED]
    return [*(ours[name] for name in sorted(ENGINE_DEPENDENCIES)), *project["optional-dependencies"]["transformers"]]


def missing(requirements: Iterable[str], installed: Callable[[str], metadata.Distribution | None]) -> list[str]:
    """Return each requirement that no installed distribution meets, also those of their dependencies; one line each."""
    lacking, seen, waiting = list[str](), set[str](), [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop(0)
        name = canonicalize_name(one.name)
        if f"{name}{one.specifier}" in seen or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        seen.add(f"{name}{one.specifier}")
        found = installed(name)
        if found is None:
            lacking.append(f"{name}{one.specifier}: not installed")
        elif not one.specifier.contains(found.version, prereleases=True):
            lacking.append(f"{name}{one.specifier}: version {found.version} is installed")
        elif not _GPU_LIBRARY.match(name) and name != "torch":  # whose own libraries are not the project's business
            waiting += map(Requirement, found.requires or [])
    return lacking


def installed_here(name: str) -> metadata.Distribution | None:
    """Return the distribution that this interpreter would import."""
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def names_in(freeze: str) -> frozenset[str]:
    """Return the names of packages in the output of pip freeze."""
    lines = (re.split(r"[=@ ]", line.strip(), maxsplit=1)[0] for line in freeze.splitlines())
    return frozenset(canonicalize_name(name) for name in lines if _PIN.match(name))


def pinned() -> str:
    """Return the text of all pins of the research runtime's image."""
    return "".join((ROOT / f"requirements/{name}.txt").read_text() for name in PINS)


def pins_for(python: str, present: Collection[str], text: str) -> list[str]:
    """Return the pins with their hashes, without markers, for a Python on Linux x86_64, except packages it has."""
    environment: dict[str, str] = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "platform_machine": "x86_64", "platform_system": "Linux", "extra": "",
    }  # fmt: skip
    chosen = []
    for block in _blocks(text):
        first, *hashes = (line.rstrip(" \\") for line in block)
        one = Requirement(first)
        name = canonicalize_name(one.name)
        left_out = name in present or name in NOT_NEEDED or _GPU_LIBRARY.match(name)
        if not left_out and (one.marker is None or one.marker.evaluate(environment)):
            chosen.append(" ".join([f"{name}{one.specifier}", *(line.strip() for line in hashes)]))
    return chosen


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each pin: the requirement and its hashes, without comments."""
    block: list[str] = []
    for line in text.splitlines():
        if _PIN.match(line) and block:
            yield block
            block = []
        if _PIN.match(line) or (block and line.strip().startswith("--hash")):
            block.append(line)
    if block:
        yield block


def download(folder: Path, python: str, present: Collection[str]) -> int:
    """Download the wheels into an empty folder, and return their size. Raises BundleError."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    pins = folder / "requirements.txt"
    pins.write_text("\n".join(pins_for(python, present, pinned())) + "\n")
    platforms = [f"--platform=manylinux_2_{number}_x86_64" for number in GLIBC]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes",
        f"--python-version={python}", "--implementation=cp", *platforms, "--platform=manylinux2014_x86_64",
        f"--dest={folder}", f"--requirement={pins}",
    ]  # fmt: skip
    if code := subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise BundleError(f"pip download ended with {code}: see its output above, and check the package index")
    size = sum(one.stat().st_size for one in folder.glob("*.whl"))
    if size > WHEELS_MAX_BYTES:
        raise BundleError(
            f"{folder}: the wheels have {size / 2**20:.0f} MiB, more than {WHEELS_MAX_BYTES >> 20} MiB: name packages"
            " that the other machine has in --present"
        )
    return size


def unpack(folder: Path, site: Path) -> int:
    """Unpack the wheels that this interpreter can import into a folder for PYTHONPATH; return their number."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    count = 0
    for wheel in sorted(folder.glob("*.whl")):
        python, abi, _ = wheel.stem.rsplit("-", 3)[1:]
        if "none" not in abi and abi != "abi3" and tag not in python:
            raise BundleError(f"{wheel}: is not for {tag}: run hack/gpu-check bundle --python {tag[2]}.{tag[3:]}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        count += 1
    return count


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in missing(needs(sys.argv[1]), installed_here)))
