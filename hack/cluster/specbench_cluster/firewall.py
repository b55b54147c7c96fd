"""iptables: restricts what pods can reach, and removes every chain of a cluster.

kube-proxy and the CNI plugins never remove their chains. Theirs begin with KUBE- or CNI-,
ours with SPECBENCH-. A cluster does not start if such chains exist already, so all of them
belong to it.
"""

import shlex
from collections.abc import Mapping, Sequence

from specbench_cluster.commands import run
from specbench_cluster.errors import CommandFailed
from specbench_cluster.settings import API_PORT, BRIDGE, DNS_PORT, IPV6, S3_PORT, Settings

_PREFIXES = ("KUBE-", "CNI-", "SPECBENCH-")
#: The families for IPv4 and IPv6; kube-proxy writes its canary chains into both.
_FAMILIES = ("iptables", "ip6tables")
#: The family of the pods' addresses.
FAMILY = "ip6tables" if IPV6 else "iptables"
ALL_TABLES: Mapping[str, Sequence[str]] = dict.fromkeys(_FAMILIES, ("filter", "nat", "mangle", "raw", "security"))


def _save(family: str) -> str:
    return run([f"{family}-save"])


def tables() -> dict[str, list[str]]:
    """Existing tables, by family."""
    return {f: [line[1:] for line in _save(f).splitlines() if line.startswith("*")] for f in _FAMILIES}


def foreign_chains() -> bool:
    """Whether this machine has chains of a running or former Kubernetes."""
    return any(_chains(_save(family)) for family in _FAMILIES)


def _chains(saved: str) -> list[tuple[str, str]]:
    """(table, chain) of each chain that belongs to a cluster."""
    found, table = [], ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and line[1:].startswith(_PREFIXES):
            found.append((table, line[1:].split()[0]))
    return found


def confine_pods(settings: Settings) -> None:
    """Allow traffic between pods and to four services of the host; reject everything else, in either direction."""
    unhooked = [chain for chain in ("INPUT", "FORWARD") if not _jumps(chain)]
    run([f"{FAMILY}-restore", "--noflush"], stdin=rules(settings.pod_host_ports, unhooked))


def rules(pod_host_ports: Sequence[int], unhooked: Sequence[str]) -> str:
    """Input of `FAMILY-restore --noflush`; declaring a chain flushes it, so the rules are idempotent."""
    tcp = ",".join(str(port) for port in (API_PORT, S3_PORT, DNS_PORT, *pod_host_ports))
    jumps = [f"-I {chain} 1 -j SPECBENCH-{chain}" for chain in unhooked]
    return "\n".join(
        [
            "*filter",
            ":SPECBENCH-INPUT - [0:0]",
            ":SPECBENCH-FORWARD - [0:0]",
            # Replies of pods to connections from the host (probes, exec) must be accepted.
            f"-A SPECBENCH-INPUT -i {BRIDGE} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -p tcp -m multiport --dports {tcp} -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -p udp --dport {DNS_PORT} -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -p {'ipv6-icmp' if IPV6 else 'icmp'} -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -j REJECT",
            # ACCEPT is needed too, because other software (Docker) sets the policy of FORWARD to DROP.
            f"-A SPECBENCH-FORWARD -i {BRIDGE} -o {BRIDGE} -j ACCEPT",
            f"-A SPECBENCH-FORWARD -i {BRIDGE} -j REJECT",
            f"-A SPECBENCH-FORWARD -o {BRIDGE} -j REJECT",
            *jumps,
            "COMMIT\n",
        ]
    )


def _jumps(chain: str) -> bool:
    try:
        run([FAMILY, "-t", "filter", "-C", chain, "-j", f"SPECBENCH-{chain}"])
    except CommandFailed:
        return False  # -C reports by its exit code
    return True


def remove_chains(before: Mapping[str, Sequence[str]]) -> None:
    """Remove every chain of a cluster, and tables that did not exist `before` and are empty now."""
    for family in _FAMILIES:
        removal = removal_of(_save(family))
        if removal:
            run([f"{family}-restore", "--noflush"], stdin=removal)
        _remove_empty_tables(family, before.get(family, ()))


def removal_of(saved: str) -> str:
    """Input of `iptables-restore --noflush` that removes a cluster's chains, and the jumps to them, from `saved`."""
    ours = _chains(saved)
    lines = []
    for table in dict.fromkeys(table for table, _ in ours):
        chains = [chain for of, chain in ours if of == table]
        lines += [f"*{table}", *(f":{chain} - [0:0]" for chain in chains)]
        lines += [f"-D {rule}" for rule in _rules_of(saved, table) if _is_jump_into(rule, chains)]
        lines += [*(f"-X {chain}" for chain in chains), "COMMIT"]
    return "\n".join([*lines, ""]) if lines else ""


def _rules_of(saved: str, table: str) -> list[str]:
    body = saved.partition(f"*{table}\n")[2].partition("COMMIT")[0]
    return [line.removeprefix("-A ") for line in body.splitlines() if line.startswith("-A ")]


def _is_jump_into(rule: str, chains: Sequence[str]) -> bool:
    words = shlex.split(rule)
    targets = [words[i + 1] for i, word in enumerate(words[:-1]) if word in {"-j", "-g"}]
    return words[0] not in chains and any(target in chains for target in targets)


def _remove_empty_tables(family: str, before: Sequence[str]) -> None:
    """Remove empty tables that did not exist before: the nft backend creates a table on first use."""
    if "nf_tables" not in run([family, "--version"]):
        return  # the legacy backend's tables belong to the kernel
    saved = _save(family)
    for table in [line[1:] for line in saved.splitlines() if line.startswith("*")]:
        body = saved.partition(f"*{table}\n")[2].partition("COMMIT")[0]
        if table in before or "-A " in body or " - [" in body:
            continue  # rules or chains of other software
        # iptables itself cannot delete a built-in chain (1.8.9 reports that it does not exist).
        run(["nft", "delete", "table", {"iptables": "ip", "ip6tables": "ip6"}[family], table])
