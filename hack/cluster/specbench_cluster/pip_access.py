"""Makes this machine's pip settings available to builds without leaving them in images.

A machine with its own package index or certificate authority needs settings that must not
be in a Dockerfile. They are merged into one pip.conf, which is mounted during the build.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Paths of pip's settings and of certificate authorities in Debian's images.
PIP_CONF = "/etc/pip.conf"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
#: pip's options that select package sources; other settings of the machine's pip are ignored.
_OPTIONS = ("index-url", "extra-index-url", "find-links", "trusted-host", "timeout", "no-index")


@dataclass(frozen=True, slots=True)
class PipAccess:
    """The text of a pip.conf, and additional mounts: (file or folder on this machine, path in the build)."""

    text: str
    mounts: tuple[tuple[str, str], ...]


def pip_access(environment: Mapping[str, str], files: tuple[Path, ...]) -> PipAccess:
    """Merge pip's files and environment as pip does: later files override earlier ones, the environment all files."""
    parser = configparser.RawConfigParser()
    parser.read(files)
    options = {k: v for k, v in (parser.items("global") if parser.has_section("global") else []) if k in _OPTIONS}
    for option in _OPTIONS:
        name = "DEFAULT_TIMEOUT" if option == "timeout" else option.upper().replace("-", "_")
        if environment.get(f"PIP_{name}"):
            options[option] = environment[f"PIP_{name}"]
    mounts = [(folder, folder) for folder in options.get("find-links", "").split() if Path(folder).is_dir()]
    authorities = environment.get("PIP_CERT") or environment.get("SSL_CERT_FILE") or AUTHORITIES
    if Path(authorities).is_file():
        mounts.append((authorities, AUTHORITIES))
        options["cert"] = AUTHORITIES
    lines = [f"{option} = {value.replace(chr(10), chr(10) + '    ')}" for option, value in sorted(options.items())]
    return PipAccess("\n".join(["[global]", *lines, ""]), tuple(mounts))


def machine_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Settings files of pip on this machine, lowest precedence first."""
    home = Path(environment.get("HOME") or Path.home())
    found = [Path(PIP_CONF), home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"]
    return (*found, Path(environment["PIP_CONFIG_FILE"])) if environment.get("PIP_CONFIG_FILE") else tuple(found)
