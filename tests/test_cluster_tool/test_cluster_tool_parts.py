"""The parts of the cluster tool that need no cluster: what is rendered, named, refused."""

import itertools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from specbench_cluster import (
    binaries,
    certificates,
    cli,
    commands,
    configuration,
    firewall,
    images,
    processes,
    requirements,
)
from specbench_cluster.cluster import Cluster
from specbench_cluster.components import COMPONENTS
from specbench_cluster.errors import (
    BuildFailed,
    CommandFailed,
    ForeignCluster,
    NotUp,
    RequirementMissing,
    StartFailed,
    UnknownComponent,
)
from specbench_cluster.images import AUTHORITIES, pip_access
from specbench_cluster.requirements import RUNTIME, Machine, missing, missing_packages
from specbench_cluster.settings import Settings

WHOLE = Machine("Linux", root=True, debian=True, have=frozenset(RUNTIME))


def quiet(_: str) -> None:
    """Progress that nobody reads."""


def settings(tmp_path: Path) -> Settings:
    return Settings(state=Path("/tmp/state"), cache=tmp_path / "cache")


# -- settings and requirements


def test_paths_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both folders can be moved, and the cache follows XDG."""
    monkeypatch.setenv("SPECBENCH_CLUSTER_STATE", "/s")
    monkeypatch.delenv("SPECBENCH_CLUSTER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    found = Settings()
    assert (found.state, found.cache) == (Path("/s"), Path("/x/specbench/cluster"))
    monkeypatch.setenv("SPECBENCH_CLUSTER_CACHE", "/c")
    assert Settings().cache == Path("/c")


def test_a_state_folder_too_long_for_sockets_is_refused() -> None:
    """Better at once than as a containerd that cannot listen."""
    with pytest.raises(ValueError, match="too long"):
        Settings(state=Path("/" + "x" * 90))


def test_a_whole_machine_lacks_nothing() -> None:
    assert missing(WHOLE, RUNTIME) == []


def test_a_debian_root_lacks_nothing_that_apt_can_bring() -> None:
    machine = replace(WHOLE, have=frozenset())
    assert missing(machine, RUNTIME) == []
    assert "containernetworking-plugins" in missing_packages(machine, RUNTIME)


def test_of_two_who_lack_the_same_one_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two apt-gets at once take each other's archives away."""
    installed: list[list[str]] = []
    both_look, looks = threading.Barrier(2), itertools.count(1)

    def machine() -> Machine:
        if next(looks) <= both_look.parties:
            both_look.wait(60)
        return WHOLE if installed else replace(WHOLE, have=WHOLE.have - {"runc"})

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


def test_every_lack_is_named_at_once() -> None:
    """System, root and packages in one answer, with the way out."""
    lacks = missing(Machine("Darwin", root=False, debian=False, have=frozenset()), RUNTIME)
    said = str(RequirementMissing(lacks))
    assert len(lacks) == 3
    for part in ("Linux", "root", "apt-get install", "containerd", "SPECBENCH_KUBECONFIG", "kind"):
        assert part in said


# -- binaries


def test_a_published_tool_is_keyed_by_its_version() -> None:
    tool = binaries.Tool("t", "example.org/t", "v1.2.3")
    assert tool.key.startswith("t-v1.2.3-")
    assert replace(tool, version="v1.2.4").key != tool.key


def test_our_own_programs_are_keyed_by_their_sources(tmp_path: Path) -> None:
    """A changed source file means another folder; a changed note beside it does not."""
    (tmp_path / "main.go").write_text("package main")
    tool = binaries.Tool("node", "./node", sources=tmp_path)
    before = tool.key
    (tmp_path / "NOTES.md").write_text("x")
    assert tool.key == before
    (tmp_path / "main.go").write_text("package main // changed")
    assert tool.key != before


def test_versions_in_module_and_tool_agree() -> None:
    """What the kubelet says of itself is what was compiled."""
    required = (binaries.SOURCES / "go.mod").read_text()
    assert f"k8s.io/kubernetes {binaries.KUBERNETES_VERSION}\n" in required
    assert f"k8s.io/kubectl => k8s.io/kubectl v0.{binaries.KUBERNETES_VERSION.removeprefix('v1.')}\n" in required


def fake_go(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "go").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "go").chmod(0o755)


def test_programs_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call finds what the first built, and no half-built folder is left."""
    calls = tmp_path / "calls"
    fake_go(
        tmp_path / "bin",
        f'echo "$1" >> {calls}; if [ "$1" = install ]; then touch "$GOBIN/one"; else touch "$GOBIN/node"; fi',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(binaries, "TOOLS", (binaries.Tool("one", "example.org/one", "v1"), binaries.TOOLS[0]))
    binaries.build_all(tmp_path / "cache", quiet)
    files = binaries.build_all(tmp_path / "cache", quiet)
    assert calls.read_text().split() == ["install", "build"]
    assert files["kubelet"] == files["etcd"]
    assert "node" not in files


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path / "bin", "echo no such package >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(binaries, "TOOLS", (binaries.Tool("one", "example.org/one", "v1"),))
    with pytest.raises(BuildFailed, match="no such package"):
        binaries.build_all(tmp_path / "cache", quiet)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["build.lock"]


# -- configuration


def test_the_kubelet_is_configured_for_a_borrowed_machine(tmp_path: Path) -> None:
    """Each of these, when missing, has cost an evening."""
    rendered = configuration.kubelet(settings(tmp_path))
    assert rendered["failCgroupV1"] is False
    assert rendered["failSwapOn"] is False
    assert rendered["localStorageCapacityIsolation"] is False
    assert rendered["cgroupRoot"] == "/specbench-cluster"
    assert rendered["address"] == "10.244.0.1"
    assert "nodefs.available" not in rendered["evictionHard"]


def test_containerd_keeps_to_the_state_folder(tmp_path: Path) -> None:
    rendered = configuration.containerd(settings(tmp_path))
    assert "restrict_oom_score_adj = true" in rendered
    assert "netns_mounts_under_state_dir = true" in rendered
    homes = [line for line in rendered.splitlines() if line.strip().startswith(("root =", "state =", "path ="))]
    assert len(homes) == 3
    assert all('"/tmp/state/' in line for line in homes)


def test_pods_are_not_masqueraded(tmp_path: Path) -> None:
    bridge = configuration.pod_network(settings(tmp_path))["plugins"][0]
    assert bridge["isGateway"]
    assert "ipMasq" not in bridge


@pytest.mark.parametrize("name", [n for n in COMPONENTS if n not in ("versitygw", "coredns", "containerd")])
def test_nothing_listens_on_every_address(tmp_path: Path, name: str) -> None:
    assert "0.0.0.0" not in " ".join(COMPONENTS[name].arguments(settings(tmp_path)))


def test_secrets_are_not_in_a_call(tmp_path: Path) -> None:
    """A process list is public; keys go by environment."""
    given = replace(settings(tmp_path), state=tmp_path)
    given.configuration.mkdir()
    (given.configuration / "s3.json").write_text('{"access_key": "A", "secret_key": "S3CRET"}')
    assert "S3CRET" not in " ".join(COMPONENTS["versitygw"].arguments(given))
    assert COMPONENTS["versitygw"].environment(given)["ROOT_SECRET_KEY"] == "S3CRET"


def test_components_come_after_what_they_need() -> None:
    seen: list[str] = []
    for name, component in COMPONENTS.items():
        assert set(component.after) <= set(seen)
        seen.append(name)


def test_written_files_fit_together(tmp_path: Path) -> None:
    """Every kubeconfig's token is known to the API server under a user, and the files are private."""
    given = Settings(state=tmp_path / "s", cache=tmp_path)
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


def test_the_pause_archive_is_reproducible(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    images.write_pause(program, "localhost/p:1", tmp_path / "a.tar")
    images.write_pause(program, "localhost/p:1", tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


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


def test_only_the_clusters_chains_are_removed() -> None:
    """Chains are emptied, jumps into them deleted, then they go; what is not ours stays."""
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


def test_nothing_is_removed_where_there_is_nothing() -> None:
    assert firewall.removal_of("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n") == ""


def test_pods_reach_named_ports_of_the_host_and_nothing_outside() -> None:
    rules = firewall.rules((9000,), ("INPUT",))
    assert "--dports 6443,7070,53,9000 " in rules
    assert "-A SPECBENCH-FORWARD -i specbench0 -j REJECT" in rules
    assert "-I INPUT 1 -j SPECBENCH-INPUT" in rules
    assert "-I FORWARD" not in rules


# -- pip


def test_pip_settings_are_merged_and_their_folders_mounted(tmp_path: Path) -> None:
    """The environment wins over files; a folder of wheels and the authorities come along."""
    wheels, bundle, conf = tmp_path / "wheels", tmp_path / "ca.pem", tmp_path / "pip.conf"
    wheels.mkdir()
    bundle.touch()
    conf.write_text(f"[global]\nindex-url = http://a/\nfind-links = {wheels}\nno-color = true\n")
    found = pip_access({"PIP_INDEX_URL": "http://b/", "PIP_CERT": str(bundle)}, (conf,))
    assert found.text == f"[global]\ncert = {AUTHORITIES}\nfind-links = {wheels}\nindex-url = http://b/\n"
    assert found.mounts == ((str(wheels), str(wheels)), (str(bundle), AUTHORITIES))


# -- processes and commands


def test_a_daemon_is_known_again_and_ended(tmp_path: Path) -> None:
    """A record leads to the process; once it is ended, neither record nor call do."""
    program = tmp_path / "bin" / "sleep"
    program.parent.mkdir()
    program.symlink_to("/bin/sleep")
    record = tmp_path / "record.json"
    process = processes.spawn([str(program), "600"], tmp_path / "log", dict(os.environ), record)
    try:
        assert processes.recorded(record) == process
        commands.wait_until(lambda: called(tmp_path) == [process], "the call")  # the shell becomes the program
    finally:
        processes.end([process], patience_s=5)
    assert not process.alive
    assert called(tmp_path) == []


def test_a_killed_process_has_not_ended_while_one_of_its_threads_holds_on() -> None:
    """Its sockets are open as long: who takes their address at once is refused it."""
    leave_a_thread = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('begun', flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit(2): the first thread alone
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


def test_a_reused_pid_is_not_our_process() -> None:
    """Same pid, other start time: a stranger, and never ended."""
    mine = processes.identify(os.getpid())
    assert mine is not None
    stranger = replace(mine, started_ticks=mine.started_ticks - 1)
    assert not stranger.alive
    processes.end([stranger])
    assert mine.alive


def test_half_a_record_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"pid": 1')
    assert processes.recorded(tmp_path / "r") is None


def test_a_failed_command_says_what_it_said() -> None:
    with pytest.raises(CommandFailed, match="why"):
        commands.run(["sh", "-c", "echo why >&2; exit 3"])
    with pytest.raises(RequirementMissing, match="no-such-program"):
        commands.run(["no-such-program"])


def test_a_wait_ends_with_an_explanation() -> None:
    with pytest.raises(StartFailed, match=r"etcd: timed out after 0 s\. because"):
        commands.wait_until(lambda: False, "etcd", timeout_s=0, interval_s=0, explain=lambda: "because")


# -- cluster and command line, with nothing up


def test_a_folder_of_somebody_else_is_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong SPECBENCH_CLUSTER_STATE must not cost anybody their files."""
    monkeypatch.setattr("specbench_cluster.requirements.require", lambda *_: None)
    state = tmp_path / "h"
    state.mkdir()
    (state / "thesis.tex").touch()
    with pytest.raises(ForeignCluster, match="not a cluster's folder"):
        Cluster(Settings(state=state, cache=tmp_path / "cache"), quiet).down()
    assert (state / "thesis.tex").exists()


def test_nothing_is_up_where_nothing_was_made(tmp_path: Path) -> None:
    cluster = Cluster(Settings(state=tmp_path / "s", cache=tmp_path / "c"), quiet)
    assert not cluster.status().up
    with pytest.raises(NotUp):
        _ = cluster.s3
    with pytest.raises(NotUp):
        cluster.start("etcd")
    with pytest.raises(UnknownComponent, match="kubelet"):
        cluster.restart("kube-api")


def test_status_of_nothing_is_valid_json_and_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECBENCH_CLUSTER_STATE", str(tmp_path / "s"))
    assert cli.main(["status", "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["up"] is False
    assert set(found["components"]) == set(COMPONENTS)


def test_env_without_a_cluster_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECBENCH_CLUSTER_STATE", str(tmp_path / "s"))
    assert cli.main(["env"]) == 1
    assert "start one with `cluster up`" in capsys.readouterr().err


def test_the_executable_runs_from_anywhere(tmp_path: Path) -> None:
    executable = binaries.SOURCES.parent / "cluster"
    said = subprocess.run(
        [sys.executable, str(executable), "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "build-image" in said.stdout
