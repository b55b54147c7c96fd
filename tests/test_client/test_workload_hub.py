"""Datasets of the Hugging Face hub: read with the datasets library, with clear errors if the hub is unreachable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.workload import locations as hub_module
from specbench_client.workload.locations import load_split
from specbench_client.workload.prompts import load_prompts
from specbench_client.workload.sources.loader import HubDataset
from specbench_client.workload.sources.registry import LOADERS


def repository(folder: Path) -> HubDataset:
    """Return a folder laid out like a hub dataset: a card with configs, and Parquet."""
    (folder / "main").mkdir(parents=True)
    rows = [{"question": f"How many is {number}?", "answer": "#### 4"} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "main" / "test-00000-of-00001.parquet")
    card = "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: main/test-*\n---\n"
    (folder / "README.md").write_text(card)
    return HubDataset(str(folder), "test", "main")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_split_is_read_by_config_and_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = load_split(repository(tmp_path / "gsm8k"), None)

    assert [(row.place, row.columns["question"]) for row in rows[:1]] == [("row 1", "How many is 0?")]
    assert len(rows) == 3
    assert capfd.readouterr() == ("", ""), "the library prints no progress bars"


def test_source_without_a_file_is_read_from_its_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = repository(tmp_path / "gsm8k")
    monkeypatch.setitem(LOADERS, Source.GSM8K, replace(LOADERS[Source.GSM8K], hub=lambda _: hub))

    found = load_prompts(Dataset(source=Source.GSM8K, count=2), tmp_path)

    assert [prompt.id for prompt in found.rows] == ["row-1", "row-2"]
    assert found.coverage is not None
    assert (found.coverage.rows, found.coverage.used) == (3, 2)


def test_missing_split_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"could not be read: .*set dataset\.uri to the file itself"):
        load_split(replace(repository(tmp_path / "gsm8k"), split="dev"), None)


def test_gated_dataset_error_explains_access(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"accept its terms on its hub page and set HF_TOKEN, or set dataset.uri"):
        load_split(replace(repository(tmp_path / "gpqa"), split="dev"), None, gated=True)


def test_hub_file_is_parsed_by_its_uris_suffix_and_named_by_its_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "0a1b2c"
    cached.write_text("id,prompt\n1,Hi\n")
    monkeypatch.setattr(hub_module, "hub_file", lambda _: cached)
    monkeypatch.setattr("specbench_client.workload.locations.hub_file", lambda _: cached)

    found = load_prompts(Dataset(source=Source.CSV, uri="hf://datasets/a/b/p.csv"), tmp_path)

    assert found.rows[0].turns[0][0].content == "Hi"
    cached.write_text("id,prompt\n1,Hi,Ho\n")
    with pytest.raises(BadInput, match=r"^hf://datasets/a/b/p\.csv, line 2: has 3 cells"):
        load_prompts(Dataset(source=Source.CSV, uri="hf://datasets/a/b/p.csv"), tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    "declared",
    [{"source": "gsm8k"}, {"source": "sharegpt"}, {"source": "jsonl", "uri": "hf://datasets/a/b/p.jsonl"}],
    ids=["split", "file of a source", "file"],
)
def test_unreachable_hub_is_rejected_with_a_remedy(declared: dict[str, str], tmp_path: Path) -> None:
    """It runs in its own process because the library reads its environment once."""
    program = (
        "import json, sys; from pathlib import Path\n"
        "from specbench_api.spec.dataset import Dataset\n"
        "from specbench_client.errors import BadInput\n"
        "from specbench_client.workload.prompts import load_prompts\n"
        "try: load_prompts(Dataset.model_validate(json.loads(sys.argv[1])), Path())\n"
        "except BadInput as error: print(error)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", program, json.dumps(declared)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)

    assert "check that the hub is reachable (HF_HUB_OFFLINE is set)" in done.stdout
    assert "set dataset.uri to the file itself (a path, or s3://BUCKET/KEY)" in done.stdout
    assert done.stdout.count("\n") == 1
