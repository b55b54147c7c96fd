"""The chart's rights cover everything that the operator creates, also on clusters that enforce owner references."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specbench_testing.operator_process import GROUP_RULES, RULES

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
RESOURCES = {"SpecBenchRun": "specbenchruns", "Job": "jobs"}
SPREAD = "LeaderWorkerSet"


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_children_that_block_owner_deletion_have_the_finalizers_permission(file: Path) -> None:
    """OpenShift enables the admission plugin OwnerReferencesPermissionEnforcement."""
    rules = [*RULES, *GROUP_RULES]
    for child in yaml.safe_load_all(file.read_text()):
        for owner in child["metadata"].get("ownerReferences", []):
            if owner.get("blockOwnerDeletion"):
                allowed = RULES if child["kind"] != SPREAD else rules
                named = f"{RESOURCES[owner['kind']]}/finalizers"
                group = owner["apiVersion"].partition("/")[0]
                assert [rule for rule in allowed if named in rule["resources"] and group in rule["apiGroups"]] == [
                    {"apiGroups": [group], "resources": [named], "verbs": ["update"]}
                ]


def test_some_children_block_owner_deletion() -> None:
    assert sum("blockOwnerDeletion: true" in file.read_text() for file in GOLDEN) > 5
