"""iptables: what pods may reach, and the removal of every chain that a cluster leaves.

kube-proxy and the CNI plugins never take their chains away. All of theirs begin with
KUBE- or CNI-, ours with SPECBENCH-; we never start where such chains exist already, so
at the end all of them are the cluster's.
"""

import shlex
from collections.abc import Mapping, Sequence

from specbench_cluster.commands import run
from specbench_cluster.errors import CommandFailed
from specbench_cluster.settings import API_PORT, BRIDGE, DNS_PORT, S3_PORT, Settings

_PREFIXES = ("KUBE-", "CNI-", "SPECBENCH-")
#: One family each for IPv4 and IPv6; kube-proxy writes its canaries into both.
_FAMILIES = ("iptables", "ip6tables")
ALL_TABLES: Mapping[str, Sequence[str]] = dict.fromkeys(_FAMILIES, ("filter", "nat", "mangle", "raw", "security"))


def _save(family: str) -> str:
    return run([f"{family}-save"])


def tables() -> dict[str, list[str]]:
    """Tables that exist now, by family."""
    return {f: [line[1:] for line in _save(f).splitlines() if line.startswith("*")] for f in _FAMILIES}


def foreign_chains() -> bool:
    """Whether a Kubernetes has left or runs its chains here."""
    return any(_chains(_save(family)) for family in _FAMILIES)


def _chains(saved: str) -> list[tuple[str, str]]:
    """(table, chain) of each chain that is a cluster's."""
    found, table = [], ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and line[1:].startswith(_PREFIXES):
            found.append((table, line[1:].split()[0]))
    return found


def confine_pods(settings: Settings) -> None:
    """Let pods reach each other and four services of the host; nothing else, in either direction."""
    unhooked = [chain for chain in ("INPUT", "FORWARD") if not _jumps(chain)]
    run(["iptables-restore", "--noflush"], stdin=rules(settings.pod_host_ports, unhooked))


def rules(pod_host_ports: Sequence[int], unhooked: Sequence[str]) -> str:
    """Input of `iptables-restore --noflush`; naming a chain empties it, so that applying twice is once."""
    tcp = ",".join(str(port) for port in (API_PORT, S3_PORT, DNS_PORT, *pod_host_ports))
    jumps = [f"-I {chain} 1 -j SPECBENCH-{chain}" for chain in unhooked]
    return "\n".join(
        [
            "*filter",
            ":SPECBENCH-INPUT - [0:0]",
            ":SPECBENCH-FORWARD - [0:0]",
            # Answers to what the host asked of pods (probes, exec) must come back.
            f"-A SPECBENCH-INPUT -i {BRIDGE} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -p tcp -m multiport --dports {tcp} -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -p udp --dport {DNS_PORT} -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -p icmp -j ACCEPT",
            f"-A SPECBENCH-INPUT -i {BRIDGE} -j REJECT",
            # Accepting, too: other software (Docker) makes DROP the policy of FORWARD.
            f"-A SPECBENCH-FORWARD -i {BRIDGE} -o {BRIDGE} -j ACCEPT",
            f"-A SPECBENCH-FORWARD -i {BRIDGE} -j REJECT",
            f"-A SPECBENCH-FORWARD -o {BRIDGE} -j REJECT",
            *jumps,
            "COMMIT\n",
        ]
    )


def _jumps(chain: str) -> bool:
    try:
        run(["iptables", "-t", "filter", "-C", chain, "-j", f"SPECBENCH-{chain}"])
    except CommandFailed:
        return False  # -C answers by its exit code
    return True


def remove_chains(before: Mapping[str, Sequence[str]]) -> None:
    """Remove every chain of a cluster, and the tables that were not there `before` and hold nothing now."""
    for family in _FAMILIES:
        removal = removal_of(_save(family))
        if removal:
            run([f"{family}-restore", "--noflush"], stdin=removal)
        _remove_empty_tables(family, before.get(family, ()))


def removal_of(saved: str) -> str:
    """Input of `iptables-restore --noflush` that takes a cluster's chains, and the jumps to them, out of `saved`."""
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
    """With the nft backend a table appears on first use; leave none behind that is ours and empty."""
    if "nf_tables" not in run([family, "--version"]):
        return  # the legacy backend's tables are the kernel's own
    saved = _save(family)
    for table in [line[1:] for line in saved.splitlines() if line.startswith("*")]:
        body = saved.partition(f"*{table}\n")[2].partition("COMMIT")[0]
        if table in before or "-A " in body or " - [" in body:
            continue  # somebody else's rules or chains
        # iptables itself cannot delete a built-in chain (1.8.9 says there is none of that name).
        run(["nft", "delete", "table", {"iptables": "ip", "ip6tables": "ip6"}[family], table])
