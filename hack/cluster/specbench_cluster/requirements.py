"""The requirements of a cluster on this machine, and how to install them."""

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench_cluster.commands import SEARCH_PATH, locked, run
from specbench_cluster.errors import RequirementMissing

#: Debian package of each program; the bridge plugin represents the CNI plugins.
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
#: The programs needed to remove a cluster.
REMOVAL: Mapping[str, str] = {name: RUNTIME[name] for name in ("ip", "iptables", "nft")}
#: Only needed to build images.
IMAGES: Mapping[str, str] = {"buildah": "buildah", "debootstrap": "debootstrap", "unshare": "util-linux"}
#: apt's own lock does not cover its archives: if they are removed after each use, as in images, one apt-get deletes
#: archives that another is about to unpack.
_ONE_APT = Path("/var/cache/apt/specbench.lock")
#: Makes apt-get wait for other users of apt on this machine.
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
    programs = [*RUNTIME, *IMAGES, "go", "apt-get"]
    have = {name for name in programs if find(name) is not None}
    return Machine(platform.system(), os.geteuid() == 0, "apt-get" in have, frozenset(have))


def find(program: str) -> str | None:
    """Return the path of a program or CNI plugin."""
    if program == "bridge":
        return next((str(f / program) for f in CNI_FOLDERS if (f / program).exists()), None)
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SEARCH_PATH}")


def missing_packages(machine: Machine, packages_by_program: Mapping[str, str]) -> list[str]:
    """Return the Debian packages of missing programs."""
    return sorted({package for program, package in packages_by_program.items() if program not in machine.have})


def missing(machine: Machine, packages_by_program: Mapping[str, str]) -> list[str]:
    """Return the requirements that only the user can provide, one line each."""
    requirements = []
    if machine.system != "Linux":
        requirements.append(f"Linux (this is {machine.system}): pods are Linux containers")
    if not machine.root:
        requirements.append("root: namespaces, cgroups, iptables and mounts need it (`sudo -E`)")
    packages = missing_packages(machine, packages_by_program)
    if packages and not (machine.root and machine.debian):
        requirements.append(f"programs, as Debian packages: apt-get install {' '.join(packages)}")
    return requirements


def require(packages_by_program: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Install missing programs if possible. Raises RequirementMissing with all missing requirements."""
    machine = this_machine()
    requirements = missing(machine, packages_by_program)
    if requirements:
        raise RequirementMissing(requirements)
    if missing_packages(machine, packages_by_program):
        with locked(_ONE_APT):
            _install(missing_packages(this_machine(), packages_by_program), progress)


def _install(packages: Sequence[str], progress: Callable[[str], None]) -> None:
    if not packages:
        return  # another process installed them during the wait for the lock
    progress(f"installing Debian packages: {' '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], env=env)  # package lists of a new machine or image are empty or old
    run(["apt-get", *_PATIENT, "install", "-y", "-q", "--no-install-recommends", *packages], env=env)
