"""docs/research/audit.md with the table of rules, and with the output for the shipped table that has known faults."""

from __future__ import annotations

from click.testing import CliRunner

from generators.marked import replaced
from specbench_client.analysis.audit.report import RULES
from specbench_client.cli import cli

_HEAD = "| rule | what must hold | why, and when it need not | tolerance |\n|---|---|---|---|"


def page() -> str:
    """The whole page."""
    rows = [f"| {rule.name} | {rule.says} | {rule.why} | {rule.tolerance} |" for rule in RULES]
    output = CliRunner().invoke(cli, ["analyze", "audit", "production-benchmark"]).stdout.strip()
    return replaced("docs/research/audit.md", {"rules": "\n".join([_HEAD, *rows]), "output": f"```text\n{output}\n```"})
