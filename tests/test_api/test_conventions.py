"""The conventions for values of enums, references to Secrets and rules, over all models."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

import specbench_api
import specbench_client.documents
from specbench_api.api_model import ApiModel, Names, RuledModel
from specbench_api.spec.run import NOTHING_CHANGES
from specbench_api.spec.secret_refs import SecretRef

PACKAGES = (specbench_api, specbench_client.documents)
for _package in PACKAGES:
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)


OTHER_FORM = (
    "specbench_api.spec.pod_template",
    *(f"specbench_client.documents.{name}" for name in ("curves", "drift", "what_if")),
)
"""Modules whose models have the names and values of pods, which Kubernetes has chosen, or of the output of commands."""


def models(base: type[ApiModel] = ApiModel) -> Iterator[type[ApiModel]]:
    """All models of the API package and of the client's documents, except those in OTHER_FORM."""
    for model in base.__subclasses__():
        ours = model.__module__.startswith(tuple(f"{package.__name__}." for package in PACKAGES))
        if ours and model.__module__ not in OTHER_FORM:
            yield model
        yield from models(model)


def fields() -> dict[str, FieldInfo]:
    """All fields of all models by their serialised names, with the names of their models."""
    return {
        f"{model.__module__}.{model.__name__}.{field.alias or name}": field
        for model in models()
        for name, field in model.model_fields.items()
    }


def types_in(annotation: Any) -> Iterator[Any]:
    """The classes and literals that an annotation consists of."""
    if get_origin(annotation) is Literal or isinstance(annotation, type):
        yield annotation
    for part in () if get_origin(annotation) is Literal else get_args(annotation):
        yield from types_in(part)


def enums() -> dict[str, type[Enum]]:
    """All enums that are the type of a field."""
    found = (each for field in fields().values() for each in types_in(field.annotation))
    return {each.__qualname__: each for each in found if isinstance(each, type) and issubclass(each, Enum)}


def literals() -> dict[str, list[Any]]:
    """The values of all fields that allow only some texts or numbers."""
    return {
        name: [value for each in types_in(field.annotation) if get_origin(each) is Literal for value in get_args(each)]
        for name, field in fields().items()
    }


def refers_to_secrets(field: FieldInfo) -> bool:
    return any(isinstance(each, type) and issubclass(each, SecretRef) for each in types_in(field.annotation))


def test_the_walk_finds_the_models() -> None:
    assert len(set(models())) > 100
    assert len(enums()) > 30
    assert sum(bool(values) for values in literals().values()) > 15
    assert sum(refers_to_secrets(field) for field in fields().values()) >= 3


@pytest.mark.parametrize("name", [name for name in fields() if "secret" in name.rpartition(".")[2].lower()])
def test_a_field_that_names_a_secret_is_a_reference(name: str) -> None:
    if fields()[name].annotation is not bool:
        assert refers_to_secrets(fields()[name]), f"{name}: use SecretRef or a class derived from it"


@pytest.mark.parametrize("name", [name for name, field in fields().items() if refers_to_secrets(field)])
def test_the_name_of_a_reference_to_a_secret(name: str) -> None:
    field, annotation = name.rpartition(".")[2], fields()[name].annotation
    is_list = any(get_origin(part) is list for part in (annotation, *get_args(annotation)))
    expected = r"imagePullSecrets" if is_list else r"[a-z]\w*SecretRef"
    assert re.fullmatch(expected, field)


def test_a_reference_to_a_secret_has_its_name_and_at_most_a_key() -> None:
    found: list[type[ApiModel]] = [SecretRef, *models(SecretRef)]
    for model in found:
        assert set(model.model_fields) in ({"name"}, {"name", "key"}), model


CAMEL_CASE = r"[A-Z][A-Za-z0-9]*"
"""The form of a value that this project has chosen."""
NAME = r"[a-z0-9][A-Za-z0-9_-]*"
"""The form of a value that is the name of something."""


@pytest.mark.parametrize("enum", enums().values(), ids=enums())
def test_values_of_enums_are_camel_case_or_names(enum: type[Enum]) -> None:
    form = NAME if issubclass(enum, Names) else CAMEL_CASE
    wrong = [each.value for each in enum if not re.fullmatch(form, each.value)]
    assert not wrong, "write them in CamelCase; if they are names of things elsewhere, derive the enum from Names"


def test_values_of_literals_are_camel_case_or_names_of_fields() -> None:
    names = {name for model in models() for name in model.model_fields}
    versions = r"specbench\.io/[a-z0-9/-]+"
    wrong = {
        name: value
        for name, values in literals().items()
        for value in values
        if isinstance(value, str)
        if value and value not in names and not re.fullmatch(f"{CAMEL_CASE}|{versions}", value)
    }
    assert not wrong, "write them in CamelCase, as the values of enums"


def test_a_field_that_may_be_none_has_a_default() -> None:
    """`to_json` leaves it out, so that a document could not be read again otherwise."""
    required = [
        name for name, field in fields().items() if field.is_required() and NoneType in types_in(field.annotation)
    ]
    assert required == []


def test_every_rule_is_also_checked_in_python_unless_it_needs_the_old_object() -> None:
    unchecked = {rule for model in models(RuledModel) for rule in model.rules if rule.holds is None}
    assert unchecked == {NOTHING_CHANGES}
