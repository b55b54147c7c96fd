"""References to Secrets of the run's namespace. CONTRIBUTING.md has the rule for their names."""

from __future__ import annotations

from specbench_api.api_model import ApiModel
from specbench_api.spec.patterns import ObjectName, SecretKey


class SecretRef(ApiModel):
    """A Secret in the run's namespace."""

    name: ObjectName
    """Name of the Secret."""


class TokenSecretRef(SecretRef):
    """A key of a Secret in the run's namespace. It is passed by reference; only the kubelet reads its value."""

    key: SecretKey = "HF_TOKEN"
    """Key of the Secret that contains the token."""


API_KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable in which a client finds the API key of running servers."""


class ApiKeySecretRef(SecretRef):
    """A key of a Secret in the run's namespace. It is passed by reference; only the kubelet reads its value."""

    key: SecretKey = API_KEY_VARIABLE
    """Key of the Secret that contains the API key."""
