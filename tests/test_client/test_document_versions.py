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
    "specbench.io/comparison/v2": "9cd85fe4479327fd",
    "specbench.io/cost-model/v1": "dbb73df94a26d78c",
    "specbench.io/curves/v2": "f7e87668f6775e48",
    "specbench.io/draft-lengths/v2": "ead05ee7526bdac5",
    "specbench.io/drift/v2": "9c1311fc7d621ee6",
    "specbench.io/gate/v3": "b15b8765be6975a5",
    "specbench.io/manifest/v2": "94e745df14c54950",
    "specbench.io/ngram/v2": "4ec6e13478d4bd8c",
    "specbench.io/oracle/v2": "f53e68ad0b7f7885",
    "specbench.io/point-summary/v5": "733f2aef8387db03",
    "specbench.io/recommendation/v3": "a468dae25f9a11e7",
    "specbench.io/run-summary/v6": "e6eb38691e02249c",
}
"""Version → hash of the form: of fields, types and bounds, without descriptions."""


def versioned(model: type[ApiModel] = ApiModel) -> Iterator[type[ApiModel]]:
    """Yield the documents of the client that have a version."""
    for each in model.__subclasses__():
        if each.__module__.startswith(documents.__name__) and "schema_version" in each.model_fields:
            yield each
        yield from versioned(each)


def form(schema: Any, types: dict[str, Any]) -> Any:
    """Return a JSON schema without its texts, and without the names of its types and their order."""
    if isinstance(schema, list):
        return [form(each, types) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return form(types[schema["$ref"].rpartition("/")[2]], types)
    texts = {name for name in ("description", "title") if isinstance(schema.get(name), str)}
    parts = {name: form(each, types) for name, each in schema.items() if name not in {"$defs", "required", *texts}}
    return {**parts, "required": sorted(schema.get("required", []))}


def test_every_form_has_its_own_version() -> None:
    for module in iter_modules(documents.__path__, f"{documents.__name__}."):
        import_module(module.name)
    forms = {}
    for model in set(versioned()):
        schema = model.model_json_schema(by_alias=True)
        text = json.dumps(form(schema, schema.get("$defs", {})), sort_keys=True)
        version = model.model_fields["schema_version"].default
        forms[version] = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert dict(sorted(forms.items())) == FORMS, (
        "raise the version of the document that differs, then add its hash here"
    )
