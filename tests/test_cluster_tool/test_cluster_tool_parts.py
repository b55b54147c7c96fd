"""The parts of the cluster tool that need no cluster: settings, builds, configuration, firewall, processes, errors."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from specbench_cluster import (
    binaries,
    certificates,
    commands,
    configuration,
    firewall,
    processes,
    requirements,
)
from specbench_cluster.cluster import Cluster
from specbench_cluster.components import COMPONENTS
from specbench_cluster.errors import (
    CommandFailed,
    ForeignCluster,
    NotUp,
    RequirementMissing,
    UnknownComponent,
)
from specbench_cluster.requirements import RUNTIME, Machine, missing, missing_packages
from specbench_cluster.settings import Settings

COMPLETE = Machine("Linux", root=True, debian=True, have=frozenset(RUNTIME))


def ignore_progress(_: str) -> None:
    """Ignore progress messages."""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, as Unix sockets need. pytest's become longer with the number of its sessions."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def settings(tmp_path: Path) -> Settings:
    return Settings(state=Path("/tmp/state"), cache=tmp_path / "cache")


# -- settings and requirements


def test_rejects_a_state_folder_too_long_for_sockets() -> None:
    """Otherwise containerd fails later because it cannot listen on its socket."""
    with pytest.raises(ValueError, match="too long"):
        Settings(state=Path("/" + "x" * 90))


def test_packages_that_apt_can_install_are_not_missing_for_root_on_debian() -> None:
    machine = replace(COMPLETE, have=frozenset())
    assert missing(COMPLETE, RUNTIME) == missing(machine, RUNTIME) == []
    assert len(missing(Machine("Darwin", root=False, debian=False, have=frozenset()), RUNTIME)) == 3
    assert "containernetworking-plugins" in missing_packages(machine, RUNTIME)


def test_two_processes_that_miss_a_package_install_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two concurrent apt-get processes delete each other's archives."""
    installed: list[list[str]] = []
    barrier, calls = threading.Barrier(2), itertools.count(1)

    def machine() -> Machine:
        if next(calls) <= barrier.parties:
            barrier.wait(60)
        return COMPLETE if installed else replace(COMPLETE, have=COMPLETE.have - {"runc"})

    def install(argv: list[str], **_: object) -> str:
        if "install" in argv:
            installed.append(argv)
        return ""

    monkeypatch.setattr(requirements, "_ONE_APT", tmp_path / "lock")
    monkeypatch.setattr(requirements, "this_machine", machine)
    monkeypatch.setattr(requirements, "run", install)
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda _: requirements.require(RUNTIME, lambda _: None), range(2)))
    assert [argv[-1] for argv in installed] == ["runc"]


# -- binaries


def test_kubernetes_versions_match_go_mod() -> None:
    """The kubelet then reports the version that was compiled."""
    required = (binaries.SOURCES / "go.mod").read_text()
    assert f"k8s.io/kubernetes {binaries.KUBERNETES_VERSION}\n" in required
    assert f"k8s.io/kubectl => k8s.io/kubectl v0.{binaries.KUBERNETES_VERSION.removeprefix('v1.')}\n" in required


def fake_go(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "go").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "go").chmod(0o755)


def test_programs_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call reuses the first build, and no partial folder remains; a changed source is built again."""
    calls = tmp_path / "calls"
    fake_go(
        tmp_path / "bin",
        f'echo "$1" >> {calls}; if [ "$1" = install ]; then touch "$GOBIN/one"; else touch "$GOBIN/node"; fi',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(binaries, "TOOLS", (binaries.Tool("one", "example.org/one", "v1"), binaries.TOOLS[1]))
    binaries.build(tmp_path / "cache", ignore_progress)
    files = binaries.build(tmp_path / "cache", ignore_progress)
    assert calls.read_text().split() == ["install", "build"]
    assert files["kubelet"] == files["etcd"]
    assert "node" not in files
    (tmp_path / "main.go").write_text("package main")
    tool = binaries.Tool("node", "./node", sources=tmp_path)
    before = tool.key
    (tmp_path / "main.go").write_text("package main // changed")
    assert tool.key != before


# -- configuration


@pytest.mark.parametrize("name", [n for n in COMPONENTS if n not in ("versitygw", "coredns", "containerd")])
def test_no_component_listens_on_all_addresses(tmp_path: Path, name: str) -> None:
    assert "0.0.0.0" not in " ".join(COMPONENTS[name].arguments(settings(tmp_path)))


_EVERY_TEXT = """
import json, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from specbench_cluster import certificates, configuration, firewall, product
from specbench_cluster.components import COMPONENTS
from specbench_cluster.settings import Settings
given = Settings(state=Path("/s"))
arguments = [COMPONENTS[name].arguments(given) for name in COMPONENTS]
files = [configuration.pod_network(given), configuration.kubelet(given), configuration.dns(given), given.api_url]
print(json.dumps([arguments, files, certificates.SERVER_NAMES, firewall.rules((), ()), product._s3_service()]))
"""


@pytest.mark.parametrize(
    ("family", "others"), [("", r"fd00|::|IPv6"), ("1", r"\b(?!127)\d+\.\d+\.\d+\.\d|IPv4|-p icmp")]
)
def test_a_cluster_has_addresses_of_one_family_besides_loopback(family: str, others: str) -> None:
    environment = {"SPECBENCH_CLUSTER_IPV6": family, "PYTHONPATH": os.pathsep.join(sys.path)}
    text = subprocess.check_output([sys.executable, "-c", _EVERY_TEXT], env=environment, text=True)
    assert re.findall(others, text) == []


def test_s3_keys_are_in_the_environment_and_not_in_the_arguments(tmp_path: Path) -> None:
    """Process arguments are public, so keys are passed in the environment."""
    given = replace(settings(tmp_path), state=tmp_path)
    given.configuration.mkdir()
    (given.configuration / "s3.json").write_text('{"access_key": "A", "secret_key": "S3CRET"}')
    assert "S3CRET" not in " ".join(COMPONENTS["versitygw"].arguments(given))
    assert COMPONENTS["versitygw"].environment(given)["ROOT_SECRET_KEY"] == "S3CRET"


def test_requests_of_audited_users_are_logged_and_no_others(tmp_path: Path) -> None:
    assert not any("audit" in argument for argument in COMPONENTS["kube-apiserver"].arguments(settings(tmp_path)))
    given = replace(settings(tmp_path), audited_users=("someone",))
    policy = f"--audit-policy-file={given.configuration}/audit-policy.json"
    assert {policy, f"--audit-log-path={given.audit_log}"} <= set(COMPONENTS["kube-apiserver"].arguments(given))
    audited, others = configuration.audit_policy(given)["rules"]
    assert (audited["level"], audited["users"], others) == ("Metadata", ["someone"], {"level": "None"})


def test_written_kubeconfigs_tokens_and_certificates_are_consistent_and_private(short: Path) -> None:
    """The token file contains the token of every kubeconfig, the certificates verify, and the files are private."""
    given = Settings(state=short / "s", cache=short)
    certificates.write_all(given.certificates)
    configuration.write_all(given)
    tokens = (given.configuration / "tokens.csv").read_text()
    for name in configuration.users(given.node):
        user = json.loads((given.configuration / f"{name}.kubeconfig").read_text())["users"][0]["user"]
        assert f"{user['token']}," in tokens
    assert given.configuration.stat().st_mode & 0o077 == 0
    assert given.certificates.stat().st_mode & 0o077 == 0
    verified = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", "apiserver.crt", "kubelet-client.crt"],
        cwd=given.certificates,
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stderr


# -- firewall

SAVED = """\
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:MINE - [0:0]
-A PREROUTING -m comment --comment "kubernetes -j KUBE-SVC-A" -j KUBE-SERVICES
-A PREROUTING -j MINE
-A KUBE-SERVICES -j KUBE-SVC-A
COMMIT
*filter
:INPUT ACCEPT [0:0]
:SPECBENCH-INPUT - [0:0]
-A INPUT -j SPECBENCH-INPUT
COMMIT
"""


def test_only_firewall_chains_of_the_cluster_are_removed() -> None:
    """Flushes the cluster's chains, deletes jumps to them and the chains themselves; other rules stay."""
    assert firewall.removal_of(SAVED).splitlines() == [
        "*nat",
        ":KUBE-SERVICES - [0:0]",
        ":KUBE-SVC-A - [0:0]",
        '-D PREROUTING -m comment --comment "kubernetes -j KUBE-SVC-A" -j KUBE-SERVICES',
        "-X KUBE-SERVICES",
        "-X KUBE-SVC-A",
        "COMMIT",
        "*filter",
        ":SPECBENCH-INPUT - [0:0]",
        "-D INPUT -j SPECBENCH-INPUT",
        "-X SPECBENCH-INPUT",
        "COMMIT",
    ]


def test_pods_can_reach_only_the_listed_ports_of_the_host() -> None:
    rules = firewall.rules((9000,), ("INPUT",))
    assert "--dports 6443,7070,53,9000 " in rules
    assert "-A SPECBENCH-FORWARD -i specbench0 -j REJECT" in rules
    assert "-I INPUT 1 -j SPECBENCH-INPUT" in rules
    assert "-I FORWARD" not in rules


# -- pip


# -- processes and commands


def test_a_daemon_is_found_by_its_record_and_ended(tmp_path: Path) -> None:
    """The record identifies the running process; after its end, no process is found."""
    program = tmp_path / "bin" / "sleep"
    program.parent.mkdir()
    program.symlink_to("/bin/sleep")
    record = tmp_path / "record.json"
    process = processes.spawn([str(program), "600"], tmp_path / "log", dict(os.environ), record)
    try:
        assert processes.recorded(record) == process
        commands.wait_until(lambda: called(tmp_path) == [process], "the call")  # the shell execs the program
    finally:
        processes.end([process], patience_s=5)
    assert not process.alive
    assert called(tmp_path) == []


def test_a_process_is_alive_until_its_last_thread_ends() -> None:
    """Its sockets stay open until then, so another process cannot bind their address."""
    leave_a_thread = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('begun', flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit(2): ends only the first thread
    )
    with subprocess.Popen(
        [sys.executable, "-c", leave_a_thread], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        assert started.stdout.readline() == b"begun\n"
        process = processes.identify(started.pid)
        assert process is not None
        assert process.alive
        started.stdin.close()
        commands.wait_until(lambda: not process.alive, "the end of its threads")


def called(folder: Path) -> list[processes.Process]:
    return processes.called_below(folder / "bin", folder / "socket")


def test_a_process_with_a_reused_pid_is_never_ended() -> None:
    """A process with the same pid and another start time is a different process and is never killed."""
    this_process = processes.identify(os.getpid())
    assert this_process is not None
    other = replace(this_process, started_ticks=this_process.started_ticks - 1)
    assert not other.alive
    processes.end([other])
    assert this_process.alive


def test_a_failed_command_raises_an_error_with_its_stderr() -> None:
    with pytest.raises(CommandFailed, match="why"):
        commands.run(["sh", "-c", "echo why >&2; exit 3"])
    with pytest.raises(RequirementMissing, match="no-such-program"):
        commands.run(["no-such-program"])


# -- cluster and command line, without a running cluster


def test_down_never_removes_a_folder_it_did_not_create(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong SPECBENCH_CLUSTER_STATE must not delete files of the user."""
    monkeypatch.setattr("specbench_cluster.requirements.require", lambda *_: None)
    state = short / "h"
    state.mkdir()
    (state / "thesis.tex").touch()
    with pytest.raises(ForeignCluster, match="not a cluster's folder"):
        Cluster(Settings(state=state, cache=short / "cache"), ignore_progress).down()
    assert (state / "thesis.tex").exists()


def test_a_cluster_that_was_never_started_is_not_up(short: Path) -> None:
    cluster = Cluster(Settings(state=short / "s", cache=short / "c"), ignore_progress)
    assert not cluster.status().up
    with pytest.raises(NotUp):
        _ = cluster.s3
    with pytest.raises(NotUp):
        cluster.start("etcd")
    with pytest.raises(UnknownComponent, match="kubelet"):
        cluster.restart("kube-api")
