"""`--set PATH=VALUE` replaces fields, and no setting is silently dropped."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.run import SpecBenchRun
from specbench_client.cli import exit_code
from specbench_client.cli.options import read_spec_file
from specbench_testing.resources import campaign, resource


def read_run_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun:
    read = read_spec_file(path, settings)
    assert isinstance(read, SpecBenchRun)
    return read


RUN = yaml.safe_dump(resource())


def run_file(folder: Path) -> Path:
    path = folder / "run.yaml"
    path.write_text(RUN)
    return path


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("spec.drafters[0].name=other", "spec.drafters.0.name", "other"),
        ("spec.drafters[name=ngram].numSpeculativeTokens=7", "spec.drafters.0.numSpeculativeTokens", 7),
        ("spec.engine.args=['--a=b']", "spec.engine.args", ["--a=b"]),
        (
            'spec.placement.nodeSelector["nvidia.com/gpu.product"]=H100',
            "spec.placement.nodeSelector",
            {"nvidia.com/gpu.product": "H100"},
        ),
        ("metadata.name=other", "metadata.name", "other"),
    ],
)
def test_field_is_set(tmp_path: Path, setting: str, path: str, value: Any) -> None:
    found: Any = read_run_file(run_file(tmp_path), (setting,)).to_dict()
    for name in path.split("."):
        found = found[int(name) if name.isdigit() else name]
    assert found == value


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        *(
            (f"spec.drafters[{index}].name=other", r"drafters\[.*is not a field of the file")
            for index in ("1", "-1", "x")
        ),
        ("spec.drafters.ngram.numSpeculativeTokens=4", r"'ngram' is not the index of a row; rows: 0 \(ngram\)"),
        ("spec.load.rows[9]=1", r"'9' is not the index of a row; rows: 0, 1 \("),
        *(
            (f"spec.load.repeats={value}", r"--set: .*spec\.load\.repeats")
            for value in ("[1", "2024-99-99", "{a: ", '"', "@x", "!!nothing 1")
        ),
        # Another kind would be rejected field by field, and a field beside spec would have no effect.
        *(
            (setting, r"--set: .* only fields of spec and metadata can \(--set spec\.load")
            for setting in ("kind=SpecBenchCampaign", "apiVersion=v2", "status.phase=Failed", "load.repeats=1")
        ),
    ],
)
def test_unusable_setting_is_rejected(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        read_run_file(run_file(tmp_path), ("spec.load.rows=[{}, x]", setting))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"spec: [1, {", r"broken\.yaml"),
        (("\ufeff" + RUN).encode("utf-16-le"), r"broken\.yaml: cannot be read: it is UTF-16.*save it as UTF-8"),
        (("\ufeff" + RUN).encode("utf-16-be"), r"broken\.yaml: cannot be read: it is UTF-16.*save it as UTF-8"),
        ("# gemütlich".encode("latin-1"), r"broken\.yaml: cannot be read: byte 5 is not UTF-8"),
    ],
    ids=["not YAML", "PowerShell", "big endian", "latin-1"],
)
def test_unreadable_file_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "broken.yaml").write_bytes(content)
    with pytest.raises(InvalidSpec, match=message) as caught:
        read_run_file(tmp_path / "broken.yaml")
    assert "unicode string" not in str(caught.value)


def test_utf_8_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xef\xbb\xbf" + RUN.encode())
    assert read_run_file(tmp_path / "run.yaml").kind == "SpecBenchRun"


@pytest.mark.parametrize(
    ("edits", "note"),
    [
        ({"spec.load.repetas": 1}, True),
        ({"apiVersion": "v1"}, True),
        ({"spec.workloads[0].extraBody": {"max_tokens": 1}}, False),
    ],
    ids=str,
)
def test_problems_that_prevent_further_checks_end_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edits: dict[str, Any], note: bool
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(resource(edits)))
    assert exit_code(["validate", str(path)]) == Exit.BAD_INPUT
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert printed.endswith("note: further checks follow once this is corrected\n") is note


def test_dash_reads_the_run_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(yaml.safe_dump(resource()).encode())))
    assert read_run_file(Path("-")).metadata.name == resource()["metadata"]["name"]


def test_setting_changes_a_campaigns_template(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(campaign()))
    settings = ("spec.template.spec.load.repeats=1", "spec.axes[0].values=[vllm]", "spec.budget.gpuHours=2")
    read = read_spec_file(path, settings)
    assert isinstance(read, SpecBenchCampaign)
    assert (read.spec.template.spec.load.repeats, read.spec.axes[0].values) == (1, ["vllm"])
    assert read.spec.budget.gpu_hours == 2
