"""Mutated runs and campaigns through parse, expand and render: each is accepted, or rejected with its problems.

The seeds are fixed, so every run of the tests has the same cases: SECURITY.md lists them.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.errors import InvalidSpec
from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.estimate import estimate
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_resource, read_yaml
from specbench_api.spec.results import S3
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.client_jobs import client_job, plan_config_map, report_job
from specbench_operator.render.engine_job import engine_job, engine_service, leader_worker_set_job
from specbench_testing.fuzzing import bounded_case, bounded_memory, shifted
from specbench_testing.hostile_documents import mutate
from specbench_testing.invalid_specs import VALID_SPECS
from specbench_testing.long_cases import long_after
from specbench_testing.operator_builders import SETTINGS
from specbench_testing.resources import resource

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = 500
"""Mutated documents a seed: the first tenth as text with random edits, the others as data."""
SEEDS = shifted(range(20))
RENDERED_RUNS = 3
"""Runs of a campaign that are rendered; all are planned."""
_SNIPPETS = ("\t", "\x00", "&a ", "*a", "<<: *a", "!!int ", "[", "{", "- ", ": ", "|\n", "'", '"', "%", "1:" * 50)


@cache
def documents() -> list[Any]:
    """The examples, and one resource for each group of fields."""
    files = [*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("seeds/*.yaml"), *EXAMPLES.glob("gitops/benchmarks/*.yaml")]
    found = [yaml.safe_load(file.read_text()) for file in sorted(files)]
    examples = [each for each in found if each.get("kind", "").startswith("SpecBench")]
    return [*examples, *(resource(edits) for _, edits in VALID_SPECS)]


def render_all(run: SpecBenchRun, plan: Plan) -> None:
    """Render every child of a run, which has a default store if it names none."""
    results = run.spec.results.model_copy(update={"s3": run.spec.results.s3 or S3(bucket="default")})
    run = run.model_copy(update={"spec": run.spec.model_copy(update={"results": results})})
    plan_config_map(run, plan, "", "")
    report_job(run, plan, SETTINGS, "")
    estimate(plan)
    for group in plan.groups[:4]:
        client_job(run, plan, group, 1, SETTINGS, engine=HostFacts(), engine_pod="uid", plan_digest="")
        if run.spec.engine.kind == "external":
            continue
        engine_service(run, plan, group, 1)
        job = engine_job(run, plan, group, 1, SETTINGS)
        json.dumps(job, allow_nan=False)
        if run.spec.placement.nodes > 1:
            leader_worker_set_job(run, group, 1, SETTINGS)


def outcome(document: Any) -> str:
    """Process a document as the operator does; return what became of it."""
    try:
        parsed = parse_resource(document)
        if isinstance(parsed, SpecBenchCampaign):
            for planned in expand_campaign(parsed).runs[:RENDERED_RUNS]:
                render_all(planned.run, planned.plan)
            return "campaign"
        render_all(parsed, expand(parsed))
    except InvalidSpec as error:
        explained = error.problems and all(problem.path and problem.message for problem in error.problems)
        return "rejected" if explained else "rejected without a problem"
    return "run"


def edited_text(text: str, draw: random.Random) -> str:
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice(_SNIPPETS) + text[at + draw.choice((0, 0, 1, 20)) :]
    return text


def text_outcome(text: str) -> str:
    try:
        document = read_yaml(text)
    except InvalidSpec:
        return "not YAML"
    return outcome(document)


@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(1, SEEDS))
def test_a_mutated_spec_is_accepted_or_rejected_with_its_problems(seed: int) -> None:
    draw, outcomes = random.Random(seed), Counter[str]()
    with bounded_memory():
        for number in range(CASES):
            source = draw.choice(documents())
            with bounded_case(f"seed {seed}, case {number}"):
                if number < CASES // 10:
                    outcomes[text_outcome(edited_text(yaml.safe_dump(source), draw))] += 1
                    continue
                changed = mutate(source, draw, documents())
                outcomes[outcome(changed if isinstance(changed, dict) else copy.deepcopy(source))] += 1
    assert min(outcomes[name] for name in ("rejected", "run", "campaign", "not YAML")) > 0, outcomes
    assert not outcomes["rejected without a problem"]
