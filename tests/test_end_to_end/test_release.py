"""The release itself: the chart's own test, and an upgrade that brings a new definition of runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specbench_cluster.product import CHART
from specbench_testing.installed_product import InstalledProduct
from specbench_testing.operator_process import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600), pytest.mark.xdist_group("end-to-end")]

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/specbenchruns.specbench.io"
WORDS = "changed by a test of the upgrade"


def test_the_charts_own_test_passes(product: InstalledProduct) -> None:
    assert "Phase:          Succeeded" in product.product.helm_test()


def test_an_upgrade_of_the_chart_upgrades_the_definition_of_runs(product: InstalledProduct, tmp_path: Path) -> None:
    changed = tmp_path / "specbench"
    shutil.copytree(CHART, changed)
    file = changed / "files/crds/specbench.io_specbenchruns.yaml"
    text, was = file.read_text(), _description(product)
    assert was in text
    file.write_text(text.replace(was, WORDS))
    product.product.install(*product.values, chart=changed)
    try:
        eventually(lambda: _description(product) == WORDS, "the definition is the old one")
    finally:
        product.product.install(*product.values)
    assert _description(product) == was


def _description(product: InstalledProduct) -> str:
    version = product.cluster.call("GET", DEFINITION)["spec"]["versions"][0]
    words: str = version["schema"]["openAPIV3Schema"]["description"]
    return words
