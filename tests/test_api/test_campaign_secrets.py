"""A campaign's axes and include rows name no Secret that its template does not name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.errors import InvalidSpec
from specbench_api.spec.run import RunSpec
from specbench_api.spec.secrets import SECRET_FIELDS, TEMPLATE_SECRETS, TEMPLATE_WORDS, secrets_named
from specbench_testing.campaign_secrets import ACCEPTED, REFUSED
from specbench_testing.campaigns import campaign_of
from specbench_testing.resources import resource


@pytest.mark.parametrize(("edits", "path"), REFUSED, ids=str)
def test_an_axis_or_include_row_cannot_add_a_secret(edits: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        expand_campaign(campaign_of(edits))
    problems = {problem.path: problem for problem in rejected.value.problems}
    assert path in problems
    assert "template" in problems[path].message
    assert problems[path].remedy.startswith("name it in spec.template.spec")


@pytest.mark.parametrize("edits", ACCEPTED, ids=str)
def test_an_axis_may_leave_secrets_out_or_repeat_those_of_the_template(edits: dict[str, Any]) -> None:
    assert expand_campaign(campaign_of(edits)).runs


def words(schema: Any, found: str = "") -> Iterator[str]:
    """The name of every field below a JSON schema."""
    if isinstance(schema, dict):
        for name, node in schema.get("properties", {}).items():
            yield name
            yield from words(node)
        for name, node in schema.items():
            yield from words(node) if name != "properties" else ()
    elif isinstance(schema, list):
        for node in schema:
            yield from words(node)


def test_the_table_has_every_field_that_names_a_secret() -> None:
    """A new field with `secret` in its name needs a row. Each name occurs once, as a search by name requires."""
    found = [word for word in words(RunSpec.model_json_schema()) if re.search("secret", word, re.IGNORECASE)]
    in_template = ["secret", *TEMPLATE_WORDS]
    assert sorted(found) == sorted([*(field.word for field in SECRET_FIELDS), *in_template])
    assert all(any(word in path.split(".") for path in TEMPLATE_SECRETS) for word in in_template)


def test_every_secret_of_a_run_is_found() -> None:
    spec = resource(
        {
            "spec.results.s3.credentialsSecretRef": {"name": "a"},
            "spec.model.tokenSecretRef": {"name": "b", "key": "k"},
            "spec.placement.imagePullSecrets": [{"name": "c"}, {"name": "d"}],
            "spec.placement.template.spec": {
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "e"}}],
                "containers": [{"name": "engine", "env": [{"valueFrom": {"secretKeyRef": {"name": "f", "key": "k"}}}]}],
            },
        }
    )["spec"]
    assert secrets_named(spec) == {"a", "b", "c", "d", "e", "f"}
    assert secrets_named(resource()["spec"]) == set()
