"""The command line: results go to stdout, progress and errors to stderr; exit code 0 for success and 1 for an error."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from specbench_cluster import binaries
from specbench_cluster.cluster import Cluster, Status, to_stderr
from specbench_cluster.components import COMPONENTS
from specbench_cluster.errors import ClusterError
from specbench_cluster.images import Build
from specbench_cluster.settings import Settings

_EPILOG = """\
The first `up` compiles Kubernetes (about nine minutes on two cores); later ones take about ten seconds.
`down` removes everything except the cache.

  cluster up && eval "$(cluster env)" && kubectl get nodes
  cluster build-image --dockerfile Dockerfile --tag docker.io/library/specbench:dev --load .
  cluster restart kube-apiserver

Environment:
  SPECBENCH_CLUSTER_STATE   folder of the running cluster, removed by `down` (default: in the temporary folder)
  SPECBENCH_CLUSTER_CACHE   folder of built programs and image layers (default: ~/.cache/specbench/cluster)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        cluster = Cluster(_settings(arguments))
        handler: Callable[[Cluster, argparse.Namespace], int] = arguments.handler
        return handler(cluster, arguments)
    except (ClusterError, ValueError, PermissionError) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 1


def _settings(arguments: argparse.Namespace) -> Settings:
    given = {name: getattr(arguments, name, None) for name in ("gpus", "gpu_product", "pod_host_ports")}
    return Settings(**{name: value for name, value in given.items() if value is not None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster",
        description="Run a real Kubernetes cluster of one node with a real S3 server, for tests and demonstrations.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_life(commands)
    _add_images(commands)
    return parser


def _add_life(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = commands.add_parser("up", help="start or repair the cluster; print the kubeconfig's path")
    up.add_argument("--gpus", type=int, help="number of fake GPUs of the node (default: 8)")
    up.add_argument("--gpu-product", help="the node's label nvidia.com/gpu.product (default: SPECBENCH-FAKE-GPU)")
    up.add_argument(
        "--pod-host-port",
        dest="pod_host_ports",
        type=int,
        action="append",
        metavar="PORT",
        help="another TCP port of the host that pods may reach (repeatable; only when the cluster is created)",
    )
    up.set_defaults(handler=_up)
    commands.add_parser("down", help="stop the cluster and remove all its files and network settings").set_defaults(
        handler=_down
    )
    status = commands.add_parser("status", help="show the components; exit code 1 if any is not running")
    status.add_argument("--output", choices=("text", "json"), default="text")
    status.set_defaults(handler=_status)
    commands.add_parser("env", help="print shell exports of the kubeconfig, S3 settings and PATH").set_defaults(
        handler=_env
    )
    commands.add_parser("binaries", help="only build the programs; print their paths").set_defaults(handler=_binaries)
    for name, action in (("restart", "stop and start"), ("kill", "kill, like a crash,"), ("start", "start")):
        one = commands.add_parser(name, help=f"{action} one component")
        one.add_argument("component", choices=list(COMPONENTS))
        one.set_defaults(handler=_one_component, action=name)


def _add_images(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    load = commands.add_parser("load-image", help="load an image archive into the node; print the image names")
    load.add_argument("archive", type=Path)
    load.set_defaults(handler=_load)
    build = commands.add_parser("build-image", help="build an image from a Dockerfile; print the archive's path")
    build.add_argument("context", type=Path)
    build.add_argument("--dockerfile", type=Path, help="path of the Dockerfile (default: CONTEXT/Dockerfile)")
    build.add_argument("--tag", required=True, help="full image name, such as docker.io/library/specbench:dev")
    build.add_argument("--base-image", help="name of the substitute for a slim Python base image; built if missing")
    build.add_argument("--target", help="stage of the Dockerfile (default: the last one)")
    build.add_argument("--build-arg", action="append", default=[], metavar="KEY=VALUE")
    build.add_argument("--load", action="store_true", help="also load the image into the node")
    build.set_defaults(handler=_build)


def _up(cluster: Cluster, _: argparse.Namespace) -> int:
    print(cluster.up().kubeconfig)
    return 0


def _down(cluster: Cluster, _: argparse.Namespace) -> int:
    cluster.down()
    return 0


def _status(cluster: Cluster, arguments: argparse.Namespace) -> int:
    status = cluster.status()
    print(json.dumps(asdict(status), indent=2) if arguments.output == "json" else _as_text(status))
    return 0 if status.up else 1


def _as_text(status: Status) -> str:
    rows = [f"{name:<24} {f'pid {pid}' if pid else 'not running'}" for name, pid in status.components.items()]
    ready = "ready" if status.node_ready else "not ready"
    facts = {"node": f"{status.node}, {ready}, {status.gpus} GPUs", "S3": status.s3_endpoint, "state": status.state}
    return "\n".join(["up" if status.up else "not up", *rows, *(f"{k:<24} {v}" for k, v in facts.items())])


def exports(cluster: Cluster) -> Mapping[str, str]:
    """Return the environment variables for clients of the cluster."""
    s3 = cluster.s3
    return {
        "KUBECONFIG": str(cluster.kubeconfig),
        "SPECBENCH_KUBECONFIG": str(cluster.kubeconfig),
        "SPECBENCH_S3_ENDPOINT": s3.endpoint,
        "SPECBENCH_S3_BUCKET": s3.bucket,
        "AWS_ENDPOINT_URL_S3": s3.endpoint,
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_DEFAULT_REGION": s3.region,
    }


def _env(cluster: Cluster, _: argparse.Namespace) -> int:
    for name, value in exports(cluster).items():
        print(f"export {name}={shlex.quote(value)}")
    print(f'export PATH={shlex.quote(str(cluster.settings.programs))}:"$PATH"')
    return 0


def _binaries(cluster: Cluster, _: argparse.Namespace) -> int:
    for name, file in binaries.build(cluster.settings.cache, to_stderr).items():
        print(f"{name}\t{file}")
    return 0


def _one_component(cluster: Cluster, arguments: argparse.Namespace) -> int:
    getattr(cluster, arguments.action)(arguments.component)
    return 0


def _load(cluster: Cluster, arguments: argparse.Namespace) -> int:
    print("\n".join(cluster.load_image(arguments.archive)))
    return 0


def _build(cluster: Cluster, arguments: argparse.Namespace) -> int:
    build = Build(
        context=arguments.context,
        dockerfile=arguments.dockerfile or arguments.context / "Dockerfile",
        tag=arguments.tag,
        base_image=arguments.base_image,
        target=arguments.target,
        arguments=dict(_pair(text) for text in arguments.build_arg),
    )
    archive = cluster.build_image(build)
    if arguments.load:
        cluster.load_image(archive)
    print(archive)
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found:
        raise ValueError(f"--build-arg {text}: give KEY=VALUE")
    return key, value
