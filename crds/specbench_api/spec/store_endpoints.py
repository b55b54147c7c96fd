"""Which addresses an S3 endpoint may resolve to. Pure: the operator resolves the name and connects to what passes.

An endpoint is a URL that the author of a run chooses, and the operator sends requests to it from its own place in the
network. So the addresses that only a process on the operator's node should reach are refused, also if a name resolves
to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Protocol
from urllib.parse import urlsplit

ENDPOINT = r"^(https?://[A-Za-z0-9._:\[\]-]+(/[^\s?#]*)?)?$"
"""Pattern of an endpoint: no user, query or fragment, and only ASCII characters in the host. Empty: AWS."""

BUCKET_CHARACTERS = "[a-z0-9.-]*"
"""What a `*` in the pattern of a bucket matches: no slash, and nothing that a client would not read as the bucket."""


_PATH_STYLE_REFUSED = re.compile("path.?style|virtual.?host|(second|third).?level.?domain", re.IGNORECASE)


def virtual_host(endpoint: str, bucket: str) -> str:
    """Return host and port of a bucket at a server that accepts the bucket only in the name of the host."""
    return f"{bucket}.{urlsplit(endpoint).netloc}"


def do_not_redirect(params: dict[str, Any], **_: Any) -> None:
    """Handle botocore's `before-call.s3.HeadBucket`: do not ask a redirected bucket for its region.

    After a redirect, botocore asks for the region, and without this for ever if that request is redirected too.
    """
    params["context"].setdefault("s3_redirect", {})["redirected"] = True


def wants_virtual_host(endpoint: str, bucket: str, error: str, location: str) -> bool:
    """Return whether a server refused the bucket in the path of a request, by its error or its redirect."""
    redirected = urlsplit(location).netloc == virtual_host(endpoint, bucket)
    return redirected or _PATH_STYLE_REFUSED.search(error) is not None


class AddressRule(StrEnum):
    """Which addresses an endpoint may resolve to."""

    ANY = "Any"
    """All: there is no fence."""
    NO_METADATA = "NoMetadata"
    """All except cloud metadata services: the fence lists the endpoint literally."""
    NO_LOCAL = "NoLocal"
    """Also no loopback, link-local, multicast and unspecified address: the fence matches the endpoint by a wildcard."""


class AllowedStore(Protocol):
    """A row of the fence's list of stores."""

    @property
    def endpoint(self) -> str:
        """Endpoint, in which `*` matches any characters of one part: `https://*.example.com`. Empty: AWS. `*`: all."""
        ...

    @property
    def bucket(self) -> str:
        """Name of the bucket, in which `*` matches any characters of a bucket's name."""
        ...

    @property
    def operator_identity(self) -> bool:
        """Whether runs without a Secret may use the store with the operator's own cloud identity."""
        ...


@dataclass(frozen=True)
class StoreAccess:
    """What the operator may do for the author of a run at one endpoint and bucket. The default: there is no fence."""

    allowed: bool = True
    """Whether the administrator allows this endpoint and bucket."""
    operator_identity: bool = True
    """Whether a run without a Secret may use it with the operator's own cloud identity."""
    addresses: AddressRule = AddressRule.ANY
    """Which addresses the endpoint may resolve to."""


def store_access(rows: Iterable[AllowedStore], endpoint: str, bucket: str) -> StoreAccess:
    """What the fence allows at this endpoint and bucket."""
    matching = [
        row
        for row in rows
        if _matches_endpoint(row.endpoint, endpoint) and _glob(row.bucket, BUCKET_CHARACTERS).fullmatch(bucket)
    ]
    return StoreAccess(
        allowed=bool(matching),
        operator_identity=any(row.operator_identity for row in matching),
        addresses=address_rule((row.endpoint for row in matching), endpoint) or AddressRule.NO_LOCAL,
    )


def address_rule(patterns: Iterable[str], endpoint: str) -> AddressRule | None:
    """Which addresses the endpoint may have if it matches one of these patterns; None if it matches none."""
    matching = [pattern for pattern in patterns if _matches_endpoint(pattern, endpoint)]
    if not matching or not re.fullmatch(ENDPOINT, endpoint):
        return None
    return AddressRule.NO_METADATA if any("*" not in pattern for pattern in matching) else AddressRule.NO_LOCAL


def _matches_endpoint(pattern: str, endpoint: str) -> bool:
    """A `*` does not match a slash, so that a wildcard for host names does not match another host's path."""
    return pattern == "*" or _glob(pattern, "[^/]*").fullmatch(endpoint) is not None


def _glob(pattern: str, star: str) -> re.Pattern[str]:
    return re.compile(star.join(re.escape(part) for part in pattern.split("*")))


METADATA_ADDRESSES = (
    "169.254.169.254",  # AWS, Google Cloud, Azure, OpenStack, Oracle Cloud
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # Google Cloud
    "169.254.169.252",  # Google Cloud: GKE metadata server
    "169.254.170.2",  # AWS: credentials of ECS tasks
    "169.254.170.23",  # AWS: EKS Pod Identity
    "fd00:ec2::23",
    "100.100.100.200",  # Alibaba Cloud
    "fd00:100::100:200",
    "168.63.129.16",  # Azure
    "192.0.0.192",  # Oracle Cloud
    "fd00:c1::a9fe:a9fe",
    "fd00:42::42",  # Scaleway
    "fd00:a9fe:a9fe::1",  # Akamai
)
"""Addresses of cloud metadata services. The chart's networkPolicy.blockedAddresses contains them; a test compares."""
LINK_LOCAL_NETWORKS = ("169.254.0.0/16", "fe80::/10")
"""Networks of addresses that are only valid on one link. The chart blocks them too."""
_LOCAL_NETWORKS = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": LINK_LOCAL_NETWORKS,
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "local-use NAT64": ("64:ff9b:1::/48",),
    "unspecified": ("0.0.0.0/8", "::/128"),
    "reserved": ("255.255.255.255/32",),
}
"""Kinds of addresses that only a literally listed endpoint may have."""
_METADATA = frozenset(map(ip_address, METADATA_ADDRESSES))
_LOCAL = {kind: tuple(map(ip_network, networks)) for kind, networks in _LOCAL_NETWORKS.items()}
_EMBEDS_IPV4 = tuple(
    ip_network(text) for text in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "::/96")
)
"""IPv6 networks whose last four bytes are an IPv4 address that packets may be sent to."""


def refused_address(address: str, rule: AddressRule) -> str | None:
    """Why the endpoint may not resolve to this IP address; None if it may. A text that is no IP address is refused."""
    if rule is AddressRule.ANY:
        return None
    try:
        found = list(_with_embedded(ip_address(address.partition("%")[0])))
    except ValueError:
        return f"{address!r} is not an IP address"
    if any(each in _METADATA for each in found):
        return f"{address} is the address of a cloud metadata service"
    if rule is AddressRule.NO_METADATA:
        return None
    kinds = (
        kind for kind, networks in _LOCAL.items() if any(each in network for network in networks for each in found)
    )
    return next((f"{address} is a {kind} address" for kind in kinds), None)


# Hosts that can be refused without resolving them. The patterns are for hosts in lower case, without a port and a
# trailing dot. The admission policy uses them as well, so they have only what RE2 and Python both have.

LOCAL_NAME = r"(?:[^/:]*\.)?localhost"
"""Pattern of names that always mean the machine itself."""
NUMERIC_HOST = r"(?:[^/:]*\.)?(?:[0-9]+|0x[0-9a-f]*)"
"""Pattern of hosts that resolvers read as an IPv4 address, also in octal, hexadecimal or with fewer parts."""
PLAIN_IPV4 = r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})"
"""Pattern of the usual spelling of an IPv4 address."""
LOCAL_IPV4 = r"(?:0|127|169\.254|22[4-9]|23[0-9])\.[0-9.]*|255\.255\.255\.255"
"""Pattern of the IPv4 addresses of `_LOCAL_NETWORKS` in their usual spelling. A test compares them."""


def refused_endpoint(endpoint: str, rule: AddressRule) -> str | None:
    """Why the endpoint is refused without resolving it: its host is an address, or a name, that is refused."""
    try:
        host = urlsplit(endpoint).hostname or ""
    except ValueError:
        return f"{endpoint!r} is not a URL"
    if rule is AddressRule.ANY:
        return None
    name = host.removesuffix(".").lower()
    if rule is AddressRule.NO_LOCAL and re.fullmatch(LOCAL_NAME, name):
        return f"{host} is a loopback name"
    if re.fullmatch(NUMERIC_HOST, name) and not re.fullmatch(PLAIN_IPV4, name):
        return f"{host} is an unusual spelling of an IP address: write four decimal numbers"
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return None  # a name, whose addresses are checked when it is resolved
    return refused_address(name, rule)


def _with_embedded(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    yield address
    if isinstance(address, IPv6Address):
        for network in _EMBEDS_IPV4:
            if isinstance(network, IPv6Network) and address in network and int(address) > 1:
                yield IPv4Address(int(address) & 0xFFFFFFFF)
        if address.sixtofour:
            yield address.sixtofour
