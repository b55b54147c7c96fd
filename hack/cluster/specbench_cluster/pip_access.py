"""How this machine's pip reaches its packages, made available to builds but not left in images.

A machine behind its own index or certificate authority needs settings that a Dockerfile
must not know. They are merged into one pip.conf and mounted for the time of the build.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Where Debian's images look for pip's settings and for authorities.
PIP_CONF = "/etc/pip.conf"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
#: pip's options that say where packages come from; all else of a machine's pip is its own business.
_OPTIONS = ("index-url", "extra-index-url", "find-links", "trusted-host", "timeout", "no-index")


@dataclass(frozen=True, slots=True)
class PipAccess:
    """The text of a pip.conf, and what to mount besides it: (file or folder here, path in the build)."""

    text: str
    mounts: tuple[tuple[str, str], ...]


def pip_access(environment: Mapping[str, str], files: tuple[Path, ...]) -> PipAccess:
    """Merge pip's files and environment as pip does: later files win, the environment wins over all."""
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
    """Settings files of pip on this machine, weakest first."""
    home = Path(environment.get("HOME") or Path.home())
    found = [Path(PIP_CONF), home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"]
    return (*found, Path(environment["PIP_CONFIG_FILE"])) if environment.get("PIP_CONFIG_FILE") else tuple(found)
