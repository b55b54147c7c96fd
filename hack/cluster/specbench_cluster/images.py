"""Builds container images without a registry and without a container daemon.

`buildah` keeps its layers in the cache, so that a second build only runs what changed. The base image of a Dockerfile
cannot be pulled: `debootstrap` makes a substitute for the official slim Python images once, under the name that the
caller requests. Builds run in a mount namespace of their own, so their mounts disappear with it. They use the package
index and certificates of this machine's pip, which are mounted and do not become part of an image.

The pause image needs no builder: it is one static program, written as an archive.
"""

import configparser
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specbench_cluster import requirements
from specbench_cluster.commands import locked, run
from specbench_cluster.errors import CommandFailed

_SUITE = "bookworm"  # its Python is 3.11
_PACKAGES = "python3-minimal,python3-venv,python3-pip,ca-certificates"
#: Increase it when the recipe below changes, so that older substitutes are rebuilt.
_RECIPE = "1"
#: Compensates for differences of Debian's Python: it has no `python`, and its pip refuses to install.
_LIKE_OFFICIAL = """set -eu
ln -s /usr/bin/python3 "$1/usr/local/bin/python"
ln -s /usr/bin/python3 "$1/usr/local/bin/python3"
rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED
rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/* "$1"/usr/share/doc/* "$1"/usr/share/man/*
"""
#: Number of unnamed images to keep: each build leaves one per stage, of up to 1 GB; enough for a few versions.
_KEPT_CHAINS = 10
_PRIVATE = ("unshare", "--mount", "--propagation", "private", "--")


@dataclass(frozen=True, slots=True)
class Build:
    """One image to build. `base_image` is the image in FROM; it is built if it does not exist.

    `target` is the stage of the Dockerfile to build, by default the last one.
    """

    context: Path
    dockerfile: Path
    tag: str
    base_image: str | None = None
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)


class Images:
    """Builds images in one cache folder; several processes can use it and wait for each other."""

    def __init__(self, cache: Path, progress: Callable[[str], None]) -> None:
        self._home = cache / "images"
        self._progress = progress

    def build(self, build: Build) -> Path:
        """Build an image and return its archive, which `Cluster.load_image` takes."""
        requirements.require(requirements.IMAGES, self._progress)
        with locked(self._home / "lock"):
            self._write_settings()
            if build.base_image is not None and not self._has(build.base_image):
                self._make_base(build.base_image)
            self._progress(f"building image {build.tag}")
            self._build_file(build)
            self._forget_old()
            return self._export(build.tag)

    def _buildah(self, *arguments: str, log: Path | None = None) -> str:
        storage = [f"--root={self._home}/storage", f"--runroot={self._home}/run", "--storage-driver=overlay"]
        env = {**os.environ, "CONTAINERS_CONF": f"{self._home}/containers.conf"}
        return run([*_PRIVATE, "buildah", *storage, *arguments], log=log, env=env)

    def _write_settings(self) -> None:
        # Otherwise buildah leaves a lock file in /etc/cni.
        (self._home / "containers.conf").write_text(f'[network]\nnetwork_config_dir = "{self._home}/cni"\n')
        # Nothing is pulled, but buildah requires a policy even to copy its own images.
        policy = {"default": [{"type": "insecureAcceptAnything"}]}
        (self._home / "policy.json").write_text(json.dumps(policy))

    def _policy(self) -> str:
        return f"--signature-policy={self._home}/policy.json"

    def _has(self, base: str) -> bool:
        made = self._home / "bases.json"
        if not made.exists() or json.loads(made.read_text()).get(base) != _RECIPE:
            return False
        try:
            self._buildah("inspect", "--type", "image", base)
        except CommandFailed:
            return False  # buildah's storage was cleaned by another program, so build the image again
        return True

    def _make_base(self, name: str) -> None:
        self._progress(f"making the base image {name} from Debian packages (once, about a minute)")
        with tempfile.TemporaryDirectory(dir=self._home, prefix=".base-") as scratch:
            root = Path(scratch) / "root"
            call = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)]
            run([*_PRIVATE, *call, *_mirror()], log=self._home / "debootstrap.log")
            run(["sh", "-c", _LIKE_OFFICIAL, "sh", str(root)])
            container = self._buildah("from", self._policy(), "scratch").strip()
            try:
                self._buildah("add", container, str(root), "/")
                path = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
                self._buildah("config", "--env", path, "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
                self._buildah("commit", self._policy(), container, name)
            finally:
                self._buildah("rm", container)
        made = self._home / "bases.json"
        known = json.loads(made.read_text()) if made.exists() else {}
        made.write_text(json.dumps({**known, name: _RECIPE}))

    def _build_file(self, build: Build) -> None:
        access = pip_access(os.environ, machine_files(os.environ))
        pip_conf = self._home / "pip.conf"
        pip_conf.touch(mode=0o600)  # the address of a package index may contain a password
        pip_conf.write_text(access.text)
        volumes = [f"--volume={here}:{there}:ro" for here, there in (*access.mounts, (str(pip_conf), PIP_CONF))]
        arguments = [f"--build-arg={key}={value}" for key, value in build.arguments.items()]
        arguments += [f"--target={build.target}"] if build.target else []
        log = self._home / "build.log"
        log.unlink(missing_ok=True)
        # `chroot` isolation, because a build needs no separate cgroup or network.
        fixed = ["--isolation=chroot", "--layers", "--pull-never", self._policy()]
        named = [f"--file={build.dockerfile}", f"--tag={build.tag}", str(build.context)]
        self._buildah("bud", *fixed, *volumes, *arguments, *named, log=log)

    def _forget_old(self) -> None:
        """Remove the oldest unnamed images; each change of a Dockerfile leaves one.

        A build that was killed leaves a container, which would keep its image in use for ever.
        """
        self._buildah("rm", "--all")
        output = self._buildah("images", "--all", "--filter", "dangling=true", "--json")
        unnamed = sorted(json.loads(output) or [], key=lambda image: str(image["createdatraw"]))
        old = [str(image["id"]) for image in unnamed[:-_KEPT_CHAINS]]
        if old:
            self._buildah("rmi", *old)

    def archive(self, tag: str) -> Path:
        """The path of the archive that a build of this tag writes."""
        return self._home / f"{tag.replace('/', '_').replace(':', '_')}.tar"

    def _export(self, tag: str) -> Path:
        archive = self.archive(tag)
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        # Uncompressed, because the archive stays on this machine and gzip would take most of the time.
        self._buildah("push", self._policy(), "--disable-compression", tag, f"docker-archive:{partial}:{tag}")
        partial.rename(archive)
        return archive


def _mirror() -> list[str]:
    """The mirror that apt uses on this machine, if it has the suite; otherwise debootstrap's default."""
    output = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(CREATED_BY)"])
    fields = [line.split() for line in output.splitlines()]
    mirrors = [f[0] for f in fields if f[1:] == [_SUITE, "Packages"] and "security" not in f[0]]
    return mirrors[:1]


def write_pause(program: Path, reference: str, archive: Path) -> None:
    """Write the pause image: a Docker archive with one layer that contains one program. The result is reproducible."""
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    described = json.dumps(config).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    files = {"manifest.json": (manifest, 0o644), name: (described, 0o644), "layer.tar": (layer, 0o644)}
    archive.write_bytes(_tar(files))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


#: Paths of pip's settings and of the certificate authorities in Debian's images.
PIP_CONF = "/etc/pip.conf"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
#: The options of pip that determine where packages come from; others are not passed to builds.
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
