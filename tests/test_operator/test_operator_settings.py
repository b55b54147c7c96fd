"""Settings: read from environment variables, documented, rejected by name if invalid; and the entry point."""

from __future__ import annotations

import ast
import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.fence.model import Fence
from specbench_operator import settings as settings_module
from specbench_operator.app import set_up_logs
from specbench_operator.errors import Stop
from specbench_operator.settings import Lease, OperatorSettings

IMAGE = {"SPECBENCH_CLIENT_IMAGE": "registry.example/specbench:1", "SPECBENCH_LEASE": "system/operator"}
VALUES = yaml.safe_load((Path(__file__).resolve().parents[2] / "helm/specbench/values.yaml").read_text())
CHART_VALUES = {
    "image_pull_policy": VALUES["image"]["pullPolicy"],
    "probe_engines": VALUES["probeEngines"],
    "leader_worker_sets": VALUES["leaderWorkerSets"],
    "client_cpu": VALUES["clientResources"]["cpu"],
    "client_memory": VALUES["clientResources"]["memory"],
    "log_level": VALUES["logLevel"],
    "workers": VALUES["workers"],
}
"""Setting -> default of the chart's value that sets it."""


def documentation() -> dict[str, str]:
    """Setting -> the docstring below its field."""
    (definition,) = (
        node
        for node in ast.parse(inspect.getsource(settings_module)).body
        if isinstance(node, ast.ClassDef) and node.name == "OperatorSettings"
    )
    found: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                found[name] = docstring
    return found


def test_every_setting_is_documented_with_its_unit() -> None:
    documented = documentation()
    assert [field.name for field in fields(OperatorSettings)] == list(documented)
    units = {name: docstring for name, docstring in documented.items() if name.endswith("_s")}
    assert [name for name, docstring in units.items() if "in seconds" not in docstring] == []


@pytest.mark.parametrize(("name", "value"), CHART_VALUES.items())
def test_chart_defaults_match_the_setting_defaults(name: str, value: Any) -> None:
    assert {field.name: field.default for field in fields(OperatorSettings)}[name] == value


def test_only_the_image_and_the_lease_are_required() -> None:
    lease = Lease("system", "operator")
    assert OperatorSettings.from_env(IMAGE) == OperatorSettings("registry.example/specbench:1", lease=lease)
    for variable in IMAGE:
        with pytest.raises(Stop, match=f"{variable} is not set"):
            OperatorSettings.from_env({name: value for name, value in IMAGE.items() if name != variable})


def test_parses_every_kind_of_value() -> None:
    given = {
        **IMAGE,
        "SPECBENCH_NAMESPACES": "team-a, team-b,",
        "SPECBENCH_WORKERS": "2",
        "SPECBENCH_RESYNC_S": "0.5",
        "SPECBENCH_IMAGE_PULL_POLICY": "Always",
        "SPECBENCH_PROBE_ENGINES": "true",
        "SPECBENCH_LOG_LEVEL": " ",
    }
    settings = OperatorSettings.from_env(given)
    assert settings.namespaces == ("team-a", "team-b")
    assert (settings.workers, settings.resync_s) == (2, 0.5)
    assert settings.probe_engines
    assert not OperatorSettings.from_env({**IMAGE, "SPECBENCH_PROBE_ENGINES": "false"}).probe_engines
    assert (settings.image_pull_policy, settings.log_level) == ("Always", "INFO")


@pytest.mark.parametrize(("pod_ip", "host"), [("", "0.0.0.0"), ("10.0.0.7", "0.0.0.0"), ("fd00::7", "::")])
def test_servers_listen_in_the_family_of_the_pods_address(pod_ip: str, host: str) -> None:
    assert OperatorSettings.from_env({**IMAGE, "SPECBENCH_POD_IP": pod_ip}).listen_host == host


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECBENCH_WORKERS", "many"),
        ("SPECBENCH_WORKERS", "0"),
        ("SPECBENCH_PROBE_ENGINES", "perhaps"),
        ("SPECBENCH_RESYNC_S", "-1"),
        ("SPECBENCH_IMAGE_PULL_POLICY", "Sometimes"),
        ("SPECBENCH_LOG_LEVEL", "LOUD"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(Stop, match=name):
        OperatorSettings.from_env({**IMAGE, name: value})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("SPECBENCH_RESYNCS_S", r"did you mean SPECBENCH_RESYNC_S\?"),
        ("SPECBENCH_resync_s", r"did you mean SPECBENCH_RESYNC_S\?"),
        ("SPECBENCH_LEASE_DURATION_S", 'remove it, or use a setting in docs, "specbench: the Helm chart"'),
        ("SPECBENCH_", 'remove it, or use a setting in docs, "specbench: the Helm chart"'),
    ],
)
def test_an_unknown_variable_is_refused_with_the_closest_setting(name: str, remedy: str) -> None:
    with pytest.raises(Stop, match=f"{name} is not a setting of the operator: {remedy}"):
        OperatorSettings.from_env({**IMAGE, name: "60"})


def test_the_chart_documents_every_setting_that_has_no_value() -> None:
    chart = Path(__file__).resolve().parents[2] / "helm/specbench"
    page, deployment = (chart / "README.md").read_text(), (chart / "templates/deployment.yaml").read_text()
    names = [f"SPECBENCH_{field.name.upper()}" for field in fields(OperatorSettings)]
    ports = {"SPECBENCH_LIVENESS_PORT", "SPECBENCH_METRICS_PORT"}  # the Deployment's probes and Services fix them
    missing = {name for name in names if f"| `{name}` |" not in page and f"name: {name}\n" not in deployment}
    assert missing == ports


def test_reads_the_fence_from_the_file_that_the_variable_names(tmp_path: Path) -> None:
    file = tmp_path / "fence.json"
    file.write_text('{"claims": ["models"], "limits": {"runs": 2}}')
    settings = OperatorSettings.from_env({**IMAGE, "SPECBENCH_FENCE": str(file)})
    assert settings.fence == Fence(claims=("models",), limits=settings.limits)
    assert settings.limits.runs == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "cannot be read"),
        ("", "not a valid fence"),
        ('{"claim": []}', r"fence\.claim:"),
        ('{"force": {"tolerations": [{"keys": "x"}]}}', r"fence\.force\.tolerations\.0\.keys:"),
        ('{"limits": {"gpus": -1}}', r"fence\.limits\.gpus:"),
    ],
)
def test_a_bad_fence_stops_the_operator(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "fence.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Stop, match=expected) as refused:
        OperatorSettings.from_env({**IMAGE, "SPECBENCH_FENCE": str(file)})
    assert refused.value.reason == "BadSettings"
    assert str(refused.value).endswith("of the chart"), "the remedy"


# The program.


WITHOUT_KOPF = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "kopf":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from specbench_operator.__main__ import main
main()
"""


@pytest.mark.process
def test_the_operator_reports_a_missing_extra_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KOPF], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "specbench-operator: kopf is not installed: pip install 'WHEEL[operator]'\n"


@pytest.fixture
def log_levels() -> Iterator[None]:
    """Restores the levels and handlers of all loggers."""
    root = logging.getLogger()
    loggers = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    before = {each: (each.level, list(each.handlers), each.propagate) for each in loggers}
    yield
    for each, (level, handlers, propagate) in before.items():
        each.setLevel(level)
        each.handlers, each.propagate = handlers, propagate


LIBRARIES = ["kubernetes.client.rest", "botocore.auth", "botocore.endpoint", "urllib3.connectionpool"]


@pytest.mark.usefixtures("log_levels")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("level", ["DEBUG", "WARNING"])
def test_libraries_never_log_requests_and_answers(library: str, level: str) -> None:
    """At level DEBUG botocore logs the headers that it signs, the session token included."""
    set_up_logs(OperatorSettings(client_image="x", log_level=level))
    assert not logging.getLogger(library).isEnabledFor(logging.DEBUG)
    assert logging.getLogger(library).isEnabledFor(logging.INFO) is (level == "DEBUG")
    assert logging.getLogger("specbench_operator").isEnabledFor(logging.DEBUG) is (level == "DEBUG")
