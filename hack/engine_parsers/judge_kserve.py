"""Applies JSON patches to InferenceServices and checks the result with KServe's models. Runs in KServe's environment.

The models accept unknown fields silently, so every name is looked up in them here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from engine_parsers.judge import Refused, judge

PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool, "float": float}


def load() -> Callable[[list[str]], str]:
    """Import KServe's models."""
    package, found = ModuleType("kserve"), find_spec("kserve")
    assert found is not None
    package.__path__ = list(found.submodule_search_locations or [])
    sys.modules["kserve"] = package  # its own __init__ imports the model server, which needs a hundred packages

    import jsonpatch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - the environment's
    from kserve import models  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    from kubernetes.client import models as core  # noqa: PLC0415

    def check(value: Any, kind: str, path: str) -> Any:
        """Return the model of a value. Raises Refused for an unknown field or another type."""
        if kind.startswith("list["):
            if not isinstance(value, list):
                raise Refused(f"{path}: is no list")
            return [check(each, kind[5:-1], f"{path}[{index}]") for index, each in enumerate(value)]
        if kind in PLAIN:
            if not isinstance(value, PLAIN[kind]):
                raise Refused(f"{path}: {value!r} is no {kind}")
            return value
        model = getattr(models, kind, None) or getattr(core, kind, None)
        if model is None or not isinstance(value, dict):
            raise Refused(f"{path}: cannot be checked as {kind}")
        fields = {alias: name for name, alias in model.attribute_map.items()}
        unknown = sorted(value.keys() - fields.keys())
        if unknown:
            raise Refused(f"{path}: {kind} has no field {unknown[0]}")
        given = {
            fields[key]: check(each, model.openapi_types[fields[key]], f"{path}.{key}") for key, each in value.items()
        }
        return model(**given)

    def take(argv: list[str]) -> str:
        resource, patch = map(json.loads, argv)
        patched = check(jsonpatch.apply_patch(resource, patch), "V1beta1InferenceService", "")
        return f"models; {len(patched.spec.predictor.model.args)} arguments"

    return take


if __name__ == "__main__":
    judge(load)
