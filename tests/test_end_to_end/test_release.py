"""The release: the chart's own test, and an upgrade with a changed CustomResourceDefinition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specbench_cluster.product import CHART
from specbench_testing.installed_product import InstalledProduct
from specbench_testing.operator_process import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/specbenchruns.specbench.io"
NEW_DESCRIPTION = "changed by a test of the upgrade"


def test_the_charts_own_test_passes(product: InstalledProduct) -> None:
    assert "Phase:          Succeeded" in product.product.helm_test()


def test_a_chart_upgrade_upgrades_the_run_definition(product: InstalledProduct, tmp_path: Path) -> None:
    changed = tmp_path / "specbench"
    shutil.copytree(CHART, changed)
    file = changed / "files/crds/specbench.io_specbenchruns.yaml"
    text, old_description = file.read_text(), _description(product)
    assert old_description in text
    file.write_text(text.replace(old_description, NEW_DESCRIPTION))
    product.product.install(*product.values, chart=changed)
    try:
        eventually(lambda: _description(product) == NEW_DESCRIPTION, "the definition is not upgraded")
    finally:
        product.product.install(*product.values)
    assert _description(product) == old_description


def _description(product: InstalledProduct) -> str:
    version = product.cluster.call("GET", DEFINITION)["spec"]["versions"][0]
    description: str = version["schema"]["openAPIV3Schema"]["description"]
    return description
