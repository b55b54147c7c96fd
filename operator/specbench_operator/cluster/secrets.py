"""Reads Secrets: first whether a run may use them, from their labels alone, and then the keys for S3.

The operator never reads another Secret's data: hub tokens and image pull credentials are only passed by reference.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping

from specbench_api.spec.secrets import LABEL_USE, SecretReference, SecretUse, not_usable
from specbench_operator.cluster.kubernetes_api import SECRET, Forbidden, Raw, Reader
from specbench_operator.cluster.s3 import KEYS
from specbench_operator.cluster.store_session import StoreError
from specbench_operator.state.run import StoreFailure


class SecretReader:
    """Reads Secrets. With `opt_in`, only those whose label allows the use. Safe for use from several threads."""

    def __init__(self, api: Reader, *, opt_in: bool = False) -> None:
        self._api = api
        self.opt_in = opt_in

    def uses(self, namespace: str, names: Iterable[str]) -> Mapping[str, str] | StoreFailure:
        """Secret → value of its label, of those that exist and have it. Reads only metadata.

        Returns SecretForbidden if the operator may not read Secrets in this namespace. Raises Retry.
        """
        found: dict[str, str] = {}
        for name in sorted(set(names)):
            try:
                use = self._use(namespace, name)
            except Forbidden as error:
                return _forbidden(name, error)
            if use is not None:
                found[name] = use
        return found

    def s3_keys(self, namespace: str, name: str) -> Mapping[str, str]:
        """The keys of a Secret for S3. Raises StoreError if there are none or they may not be used; and Retry."""
        reference = SecretReference("spec.results.s3.credentialsSecretRef.name", name, SecretUse.S3)
        try:
            if self.opt_in and self._use(namespace, name) != SecretUse.S3:
                raise StoreError(StoreFailure("NotAllowed", str(not_usable(reference)), refused=True))
            found = self._api.get(SECRET, namespace, name)
        except Forbidden as error:
            raise StoreError(_forbidden(name, error)) from error
        if found is None:
            message = (
                f"the Secret {name!r} of spec.results.s3 does not exist in this namespace:"
                f" create it with {KEYS[0]} and {KEYS[1]}"
            )
            raise StoreError(StoreFailure("SecretMissing", message, refused=True))
        return _decode(name, found.get("data") or {})

    def _use(self, namespace: str, name: str) -> str | None:
        found: Raw | None = self._api.get(SECRET, namespace, name, bare=True)
        use = ((found or {}).get("metadata", {}).get("labels") or {}).get(LABEL_USE)
        return None if use is None else str(use)


def _forbidden(name: str, error: Forbidden) -> StoreFailure:
    remedy = "give the operator `get` on Secrets in this namespace"
    return StoreFailure("SecretForbidden", f"the Secret {name!r} cannot be read: {error}; {remedy}", refused=True)


def _decode(name: str, data: Mapping[str, str]) -> Mapping[str, str]:
    missing = [key for key in KEYS[:2] if not data.get(key)]
    if missing:
        message = f"the Secret {name!r} of spec.results.s3 has no {' and no '.join(missing)}: add what is missing"
        raise StoreError(StoreFailure("SecretIncomplete", message, refused=True))
    try:
        return {key: base64.b64decode(data[key], validate=True).decode() for key in KEYS if data.get(key)}
    except (binascii.Error, UnicodeDecodeError) as error:
        message = f"the Secret {name!r} of spec.results.s3 is not UTF-8 text: create it again with plain keys"
        raise StoreError(StoreFailure("SecretIncomplete", message, refused=True)) from error
