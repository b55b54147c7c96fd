"""Every rule, in the order in which findings are told."""

from __future__ import annotations

from specbench_client.analysis.audit.rule import Rule
from specbench_client.analysis.audit.rules.acceptance import FALLS, LENGTHS, SHARES
from specbench_client.analysis.audit.rules.load import END_TO_END, LITTLE, STREAMS, THROUGHPUT
from specbench_client.analysis.audit.rules.money import COST
from specbench_client.analysis.audit.rules.releases import RELEASE
from specbench_client.analysis.audit.rules.repeats import REPEATED
from specbench_client.analysis.audit.rules.speedup import ABOVE_TPOT, BOUNDED, MIXED, OWN
from specbench_client.analysis.audit.rules.steps import STATED_STEP, STEP_TIME

RULES: tuple[Rule, ...] = (
    SHARES,
    LENGTHS,
    FALLS,
    STATED_STEP,
    STEP_TIME,
    BOUNDED,
    OWN,
    ABOVE_TPOT,
    MIXED,
    THROUGHPUT,
    STREAMS,
    LITTLE,
    END_TO_END,
    COST,
    RELEASE,
    REPEATED,
)
