"""A document whose form changes has a new version: readers of the earlier one would call it damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from specbench_api.api_model import ApiModel
from specbench_client import documents

FORMS = {
    "specbench.io/comparison/v1": "0fea1cf1b510f6dd",
    "specbench.io/cost-model/v1": "313cf45b80b12b27",
    "specbench.io/curves/v1": "01af3dba2f263749",
    "specbench.io/draft-lengths/v1": "cfc2ea06906cddc0",
    "specbench.io/drift/v1": "9b4178d5f4a48f37",
    "specbench.io/gate/v1": "e7c3c255951d21a0",
    "specbench.io/manifest/v2": "f39b39de608dc78d",
    "specbench.io/ngram/v1": "9d612e250eb9eb06",
    "specbench.io/oracle/v1": "6ce9bcaddffb3ad7",
    "specbench.io/point-summary/v2": "91e27f915aefecee",
    "specbench.io/recommendation/v1": "0f7101be8eb87d3f",
    "specbench.io/run-summary/v3": "571e0427e65702c6",
}
"""Version → hash of the form: of fields, types and bounds, without descriptions."""


def versioned(model: type[ApiModel] = ApiModel) -> Iterator[type[ApiModel]]:
    """Yield the documents of the client that have a version."""
    for each in model.__subclasses__():
        if each.__module__.startswith(documents.__name__) and "schema_version" in each.model_fields:
            yield each
        yield from versioned(each)


def form(schema: Any) -> Any:
    """Return a JSON schema without its texts."""
    if isinstance(schema, list):
        return [form(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    texts = {name for name in ("description", "title") if isinstance(schema.get(name), str)}
    return {name: form(each) for name, each in schema.items() if name not in texts}


def test_every_form_has_its_own_version() -> None:
    for module in iter_modules(documents.__path__, f"{documents.__name__}."):
        import_module(module.name)
    forms = {}
    for model in set(versioned()):
        schema = json.dumps(form(model.model_json_schema(by_alias=True)), sort_keys=True)
        version = model.model_fields["schema_version"].default
        forms[version] = hashlib.sha256(schema.encode()).hexdigest()[:16]
    assert dict(sorted(forms.items())) == FORMS, (
        "raise the version of the document that differs, then add its hash here"
    )
