"""`specbench validate --fence`: the operator's check against the values of the chart or the operator's own file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_testing.campaigns import campaign
from specbench_testing.specs import simulated_run, write_run

CHART = Path(__file__).resolve().parents[2] / "helm/specbench/values.yaml"
DEFAULTS: dict[str, Any] = yaml.safe_load(CHART.read_text(encoding="utf-8"))["fence"]
OPEN: dict[str, Any] = {"stores": [{"endpoint": "*", "bucket": "*", "operatorIdentity": True}]}


def validate(folder: Path, fence: Any, resource: Any = None) -> int:
    """The exit code for this fence file, and a run that mounts the claim `models` unless another is given."""
    (folder / "fence").write_text(fence if isinstance(fence, str) else yaml.safe_dump(fence))
    run = resource or simulated_run(placement={"modelCache": {"claimName": "models"}})
    return exit_code(["validate", str(write_run(folder, run)), "--fence", str(folder / "fence"), "--output", "json"])


@pytest.mark.parametrize(
    ("fence", "valid"),
    [
        ({**OPEN, "claims": ["models"]}, True),
        (json.dumps({**OPEN, "claims": ["models"]}), True),
        ({"fence": {**DEFAULTS, **OPEN, "claims": ["models"]}, "image": {"repository": "own"}, "workers": 4}, True),
        ({**OPEN}, False),
        ({"fence": {**DEFAULTS, **OPEN}}, False),
        ({"fence": {**OPEN, "enabled": False}}, True),
    ],
    ids=str,
)
def test_a_run_is_checked_against_the_fence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fence: Any, valid: bool
) -> None:
    assert validate(tmp_path, fence) == (Exit.OK if valid else Exit.BAD_INPUT)
    printed = capsys.readouterr()
    if not valid:
        assert json.loads(printed.out)["error"]["reason"] == "NotAllowed"
        assert "spec.placement.modelCache.claimName: models is not allowed on this cluster" in printed.err


def test_a_campaign_is_checked_against_the_fence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = {"path": "engine.image", "values": ["vllm/vllm-openai:v0.30.0", "evil.example/vllm:v0.30.0"]}
    resource = campaign({"spec.axes": [images]})
    assert validate(tmp_path, OPEN, resource) == Exit.BAD_INPUT
    assert "[image=evil.example/vllm:v0.30.0] spec.engine.image: evil.example/" in capsys.readouterr().err
    assert validate(tmp_path, {**OPEN, "images": ["evil.example/*"]}, resource) == Exit.OK


def test_values_without_those_of_the_chart_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without them, GPUs and tolerations that the chart allows by default would count as refused."""
    assert validate(tmp_path, {"fence": {**OPEN, "claims": ["models"]}}) == Exit.BAD_INPUT
    message = capsys.readouterr().err
    assert f"{tmp_path / 'fence'} has no fence.capabilities, fence.commands" in message
    assert "helm get values RELEASE --all -o yaml" in message


@pytest.mark.parametrize(
    ("fence", "path"),
    [
        ("claim: []", "claim"),
        ("fence: 3", "(resource): input should be an object"),
        ("limits: {gpus: -1}", "limits.gpus"),
        ("fence: {stores: [{endpoint: ''}]}", "fence.stores[0].bucket"),
    ],
)
def test_a_bad_fence_is_reported_with_file_and_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fence: str, path: str
) -> None:
    assert validate(tmp_path, fence) == Exit.BAD_INPUT
    assert f"{tmp_path / 'fence'} is not a valid fence: {path}" in capsys.readouterr().err
