"""`--set PATH=VALUE`: what it replaces, and that nothing a user sets is silently dropped."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from specbench_api.errors import InvalidSpec
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.run import SpecBenchRun
from specbench_client.cli.reading import read_file
from specbench_testing.campaigns import campaign
from specbench_testing.resources import resource


def read_run_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun:
    read = read_file(path, settings)
    assert isinstance(read, SpecBenchRun)
    return read


def run_file(folder: Path) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(resource()))
    return path


def test_a_field_of_a_row_is_replaced(tmp_path: Path) -> None:
    wanted = read_run_file(run_file(tmp_path), ("spec.drafters[0].name=other", "spec.load.repeats=2"))
    assert (wanted.spec.drafters[0].name, wanted.spec.load.repeats) == ("other", 2)


@pytest.mark.parametrize("index", ["1", "7", "-1", "x"])
def test_a_row_that_is_not_there_is_refused_and_not_passed_over(tmp_path: Path, index: str) -> None:
    with pytest.raises(InvalidSpec, match=r"drafters\[.*leads nowhere"):
        read_run_file(run_file(tmp_path), (f"spec.drafters[{index}].name=other",))


def test_a_row_that_is_named_instead_of_numbered_is_answered_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"'ngram' is no row of a list, whose rows go by number: 0 \(ngram\)"):
        read_run_file(run_file(tmp_path), ("spec.drafters.ngram.numSpeculativeTokens=4",))


def test_rows_without_a_name_are_told_by_their_numbers_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"'9' is no row of a list, whose rows go by number: 0, 1 \("):
        read_run_file(run_file(tmp_path), ("spec.load.rows=[{}, x]", "spec.load.rows[9]=1"))


def test_a_text_that_is_no_yaml_is_told_with_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("spec: [1, {")
    with pytest.raises(InvalidSpec, match=r"broken\.yaml") as refused:
        read_run_file(path)
    assert "unicode string" not in str(refused.value)


def test_a_dash_reads_the_run_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(yaml.safe_dump(resource()).encode())))
    assert read_run_file(Path("-")).metadata.name == resource()["metadata"]["name"]


@pytest.mark.parametrize("value", ["[1", "2024-99-99", "{a: ", '"', "@x", "!!nothing 1"])
def test_a_value_that_is_no_yaml_is_refused_with_the_setting(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidSpec, match=r"--set: .*spec\.load\.repeats"):
        read_run_file(run_file(tmp_path), (f"spec.load.repeats={value}",))


def test_a_setting_reaches_into_a_campaigns_template(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(campaign()))
    settings = ("spec.template.spec.load.repeats=1", "spec.axes[0].values=[vllm]", "spec.budget.gpuHours=2")
    read = read_file(path, settings)
    assert isinstance(read, SpecBenchCampaign)
    assert (read.spec.template.spec.load.repeats, read.spec.axes[0].values) == (1, ["vllm"])
    assert read.spec.budget.gpu_hours == 2


def test_a_row_may_go_by_its_name(tmp_path: Path) -> None:
    settings = ("spec.drafters[name=ngram].numSpeculativeTokens=7", "spec.engine.args=['--a=b']")
    read = read_run_file(run_file(tmp_path), settings)
    assert (read.spec.drafters[0].num_speculative_tokens, read.spec.engine.args) == (7, ["--a=b"])


def test_a_key_with_dots_stands_in_quotes(tmp_path: Path) -> None:
    setting = 'spec.placement.nodeSelector["nvidia.com/gpu.product"]=H100'
    assert read_run_file(run_file(tmp_path), (setting,)).spec.placement.node_selector == {
        "nvidia.com/gpu.product": "H100"
    }


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_told_as_such_with_what_to_do(tmp_path: Path, encoding: str) -> None:
    """As PowerShell writes it. kubectl does not take it either."""
    path = tmp_path / "run.yaml"
    path.write_bytes(("\ufeff" + yaml.safe_dump(resource())).encode(encoding))
    with pytest.raises(InvalidSpec, match=r"run\.yaml: cannot be read: it is UTF-16.*save it as UTF-8"):
        read_run_file(path)


def test_a_file_in_another_encoding_is_told_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes("# gemütlich".encode("latin-1"))
    with pytest.raises(InvalidSpec, match=r"run\.yaml: cannot be read: byte 5 is not UTF-8"):
        read_run_file(path)


def test_a_mark_at_the_beginning_of_utf_8_does_no_harm(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_run_file(path).kind == "SpecBenchRun"


@pytest.mark.parametrize(
    "setting", ["kind=SpecBenchCampaign", "apiVersion=v2", "status.phase=Failed", "load.repeats=1"]
)
def test_what_is_not_asked_of_a_run_is_not_set(tmp_path: Path, setting: str) -> None:
    """Another kind would be refused field by field, and a field beside spec would be none."""
    with pytest.raises(InvalidSpec, match=r"--set: .* what is asked stands below spec \(--set spec\.load"):
        read_run_file(run_file(tmp_path), (setting,))


def test_a_name_may_be_set(tmp_path: Path) -> None:
    assert read_run_file(run_file(tmp_path), ("metadata.name=other",)).metadata.name == "other"
