"""The requirements of a cluster on this machine, and how to install them."""

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench_cluster.commands import SEARCH_PATH, locked, run
from specbench_cluster.errors import RequirementMissing

#: Debian package of each program; the bridge plugin stands for the CNI plugins.
RUNTIME: Mapping[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "mount": "mount",
}
#: Enough to take a cluster away.
REMOVAL: Mapping[str, str] = {name: RUNTIME[name] for name in ("ip", "iptables", "nft")}
#: Only needed to build images.
IMAGES: Mapping[str, str] = {"buildah": "buildah", "debootstrap": "debootstrap", "unshare": "util-linux"}
#: apt's own lock does not cover its archives: where those are removed after each use, as in images, one apt-get takes
#: away what another is about to unpack.
_ONE_APT = Path("/var/cache/apt/specbench.lock")
#: For what else uses apt on this machine.
_PATIENT = ("-o", "DPkg::Lock::Timeout=600")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the machine as values, so that every missing requirement can be tested anywhere."""

    system: str
    root: bool
    debian: bool
    have: frozenset[str]


def this_machine() -> Machine:
    """Collect the facts of this machine."""
    wanted = [*RUNTIME, *IMAGES, "go", "apt-get"]
    have = {name for name in wanted if find(name) is not None}
    return Machine(platform.system(), os.geteuid() == 0, "apt-get" in have, frozenset(have))


def find(program: str) -> str | None:
    """Return the path of a program or CNI plugin."""
    if program == "bridge":
        return next((str(f / program) for f in CNI_FOLDERS if (f / program).exists()), None)
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SEARCH_PATH}")


def missing_packages(machine: Machine, wanted: Mapping[str, str]) -> list[str]:
    """Return the Debian packages of missing programs."""
    return sorted({package for program, package in wanted.items() if program not in machine.have})


def missing(machine: Machine, wanted: Mapping[str, str]) -> list[str]:
    """Return the requirements that only the user can provide, one line each."""
    lacks = []
    if machine.system != "Linux":
        lacks.append(f"Linux (this is {machine.system}): pods are Linux containers")
    if not machine.root:
        lacks.append("root: namespaces, cgroups, iptables and mounts need it (`sudo -E`)")
    packages = missing_packages(machine, wanted)
    if packages and not (machine.root and machine.debian):
        lacks.append(f"programs, as Debian packages: apt-get install {' '.join(packages)}")
    return lacks


def require(wanted: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Install missing programs if possible. Raises RequirementMissing with all missing requirements."""
    machine = this_machine()
    lacks = missing(machine, wanted)
    if lacks:
        raise RequirementMissing(lacks)
    if missing_packages(machine, wanted):
        with locked(_ONE_APT):
            _install(missing_packages(this_machine(), wanted), progress)


def _install(packages: Sequence[str], progress: Callable[[str], None]) -> None:
    if not packages:
        return  # another process installed them while we waited
    progress(f"installing Debian packages: {' '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], env=env)  # the lists of a fresh machine or image are empty or old
    run(["apt-get", *_PATIENT, "install", "-y", "-q", "--no-install-recommends", *packages], env=env)
