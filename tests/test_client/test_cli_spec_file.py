"""`--set PATH=VALUE` replaces fields, and no setting is silently dropped."""

from __future__ import annotations

import io
import json
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
PROMPT = '{"prompt": "Hello"}\n'


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
        (("\ufeff" + RUN).encode("utf-16-le"), r"broken\.yaml: cannot be read: byte 0 is not UTF-8.*PowerShell"),
        (("\ufeff" + RUN).encode("utf-16-be"), r"broken\.yaml: cannot be read: byte 0 is not UTF-8.*PowerShell"),
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


@pytest.mark.parametrize("results", [{}, {"results": None}, {"results": {}}, {"results": {"s3": None}}], ids=str)
def test_only_a_cluster_needs_a_bucket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], results: dict[str, Any]
) -> None:
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    run = resource()
    run["spec"] = {name: value for name, value in run["spec"].items() if name != "results"} | results
    planned = campaign()
    planned["spec"]["template"]["spec"] = run["spec"]
    for document in (run, planned):
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(document))
        assert exit_code(["plan", str(path)]) == Exit.OK
        assert "results.s3" not in capsys.readouterr().err
        assert exit_code(["validate", str(path), "--output", "json"]) == Exit.OK
        assert "spec.results.s3: is not set" in "".join(json.loads(capsys.readouterr().out)["warnings"])


@pytest.mark.parametrize("spec", [None, [], "x", {"results": {"s3": {"bucket": 1}}}, {"results": []}], ids=str)
def test_a_bucket_in_the_wrong_form_is_still_rejected(tmp_path: Path, spec: Any) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**resource(), "spec": spec}))
    assert exit_code(["validate", str(tmp_path / "run.yaml")]) == Exit.BAD_INPUT


def test_several_files_are_validated_and_all_problems_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    texts = {"good": RUN, "bad": yaml.safe_dump(resource({"spec.load.repetas": 1})), "none": "- 1", "more": RUN}
    files = {name: tmp_path / f"{name}.yaml" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    assert exit_code(["validate", *map(str, files.values()), "-o", "json"]) == Exit.BAD_INPUT
    messages = json.loads(capsys.readouterr().out)["error"]["messages"]
    assert [each.partition(": ")[0] for each in messages] == [str(files["bad"]), str(files["none"])]
    assert exit_code(["validate", str(files["good"]), str(files["more"]), "-o", "json"]) == Exit.OK
    assert [each["valid"] for each in json.loads(capsys.readouterr().out)] == [True, True]


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_mistyped_file_is_answered_with_a_similar_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run_file(tmp_path)
    assert exit_code([command, str(tmp_path / "rnu.yaml")]) == Exit.BAD_INPUT
    assert f"Did you mean {tmp_path / 'run.yaml'}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "value", "meant"),
    [
        ("spec.engine.kind", "vlm", "vllm"),
        ("spec.engine.kind", "llamacpp", "llama-cpp"),
        ("spec.drafters[0].method", "eagel3", "eagle3"),
        ("spec.workloads[0].dataset.source", "mtbench", "mt-bench"),
        ("spec.load.order", "interleaved", "Interleaved"),
        ("spec.baseline", "Messure", "Measure"),
    ],
)
def test_a_mistyped_name_is_answered_with_a_similar_one(tmp_path: Path, path: str, value: str, meant: str) -> None:
    with pytest.raises(InvalidSpec, match=f"did you mean {meant}\\?"):
        read_run_file(run_file(tmp_path), (f"{path}={value}",))
