"""`--set PATH=VALUE` replaces fields, and no setting is silently dropped."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.termination import Exit
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.run import SpecBenchRun
from specbench_client.cli import exit_code
from specbench_client.cli.options import read_spec_file
from specbench_testing.campaigns import campaign
from specbench_testing.resources import resource


def read_run_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun:
    read = read_spec_file(path, settings)
    assert isinstance(read, SpecBenchRun)
    return read


def run_file(folder: Path) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(resource()))
    return path


def test_field_of_a_row_is_replaced(tmp_path: Path) -> None:
    changed = read_run_file(run_file(tmp_path), ("spec.drafters[0].name=other", "spec.load.repeats=2"))
    assert (changed.spec.drafters[0].name, changed.spec.load.repeats) == ("other", 2)


@pytest.mark.parametrize("index", ["1", "7", "-1", "x"])
def test_missing_row_is_rejected(tmp_path: Path, index: str) -> None:
    with pytest.raises(InvalidSpec, match=r"drafters\[.*is not a field of the file"):
        read_run_file(run_file(tmp_path), (f"spec.drafters[{index}].name=other",))


def test_row_given_by_name_is_rejected_with_the_indexes(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"'ngram' is not the index of a row; rows: 0 \(ngram\)"):
        read_run_file(run_file(tmp_path), ("spec.drafters.ngram.numSpeculativeTokens=4",))


def test_rows_without_a_name_are_listed_by_index(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"'9' is not the index of a row; rows: 0, 1 \("):
        read_run_file(run_file(tmp_path), ("spec.load.rows=[{}, x]", "spec.load.rows[9]=1"))


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


def test_invalid_yaml_is_reported_with_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("spec: [1, {")
    with pytest.raises(InvalidSpec, match=r"broken\.yaml") as caught:
        read_run_file(path)
    assert "unicode string" not in str(caught.value)


def test_dash_reads_the_run_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(yaml.safe_dump(resource()).encode())))
    assert read_run_file(Path("-")).metadata.name == resource()["metadata"]["name"]


@pytest.mark.parametrize("value", ["[1", "2024-99-99", "{a: ", '"', "@x", "!!nothing 1"])
def test_value_that_is_not_yaml_is_rejected_with_the_setting(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidSpec, match=r"--set: .*spec\.load\.repeats"):
        read_run_file(run_file(tmp_path), (f"spec.load.repeats={value}",))


def test_setting_changes_a_campaigns_template(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(campaign()))
    settings = ("spec.template.spec.load.repeats=1", "spec.axes[0].values=[vllm]", "spec.budget.gpuHours=2")
    read = read_spec_file(path, settings)
    assert isinstance(read, SpecBenchCampaign)
    assert (read.spec.template.spec.load.repeats, read.spec.axes[0].values) == (1, ["vllm"])
    assert read.spec.budget.gpu_hours == 2


def test_row_may_be_selected_by_name(tmp_path: Path) -> None:
    settings = ("spec.drafters[name=ngram].numSpeculativeTokens=7", "spec.engine.args=['--a=b']")
    read = read_run_file(run_file(tmp_path), settings)
    assert (read.spec.drafters[0].num_speculative_tokens, read.spec.engine.args) == (7, ["--a=b"])


def test_key_with_dots_is_quoted(tmp_path: Path) -> None:
    setting = 'spec.placement.nodeSelector["nvidia.com/gpu.product"]=H100'
    assert read_run_file(run_file(tmp_path), (setting,)).spec.placement.node_selector == {
        "nvidia.com/gpu.product": "H100"
    }


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_file_is_reported_with_a_remedy(tmp_path: Path, encoding: str) -> None:
    """PowerShell writes such files; kubectl rejects them too."""
    path = tmp_path / "run.yaml"
    path.write_bytes(("\ufeff" + yaml.safe_dump(resource())).encode(encoding))
    with pytest.raises(InvalidSpec, match=r"run\.yaml: cannot be read: it is UTF-16.*save it as UTF-8"):
        read_run_file(path)


def test_file_in_another_encoding_is_reported_with_the_position(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes("# gemütlich".encode("latin-1"))
    with pytest.raises(InvalidSpec, match=r"run\.yaml: cannot be read: byte 5 is not UTF-8"):
        read_run_file(path)


def test_utf_8_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_run_file(path).kind == "SpecBenchRun"


@pytest.mark.parametrize(
    "setting", ["kind=SpecBenchCampaign", "apiVersion=v2", "status.phase=Failed", "load.repeats=1"]
)
def test_only_spec_and_metadata_can_be_set(tmp_path: Path, setting: str) -> None:
    """Another kind would be rejected field by field, and a field beside spec would have no effect."""
    with pytest.raises(InvalidSpec, match=r"--set: .* only fields of spec and metadata can \(--set spec\.load"):
        read_run_file(run_file(tmp_path), (setting,))


def test_name_may_be_set(tmp_path: Path) -> None:
    assert read_run_file(run_file(tmp_path), ("metadata.name=other",)).metadata.name == "other"
