"""The cluster's small certificate authority, made by the `openssl` program.

It issues two certificates: the API server's, and the one that the API server uses
as a client of the kubelet (logs, exec). Components and users authenticate by token:
a token file is easier to create and to read than eight certificates.
"""

from pathlib import Path

from specbench_cluster.commands import run
from specbench_cluster.settings import API_SERVICE_IP, HOST_IP

_DAYS = "3650"
_EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
#: Every name and address of the API server that the host or pods use.
SERVER_NAMES = (
    "IP:127.0.0.1",
    f"IP:{API_SERVICE_IP}",
    f"IP:{HOST_IP}",
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
)


def write_all(folder: Path) -> None:
    """Write authority, certificates and the key of service account tokens, unless they exist."""
    if (folder / "serviceaccount.key").exists():  # written last
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    # Key identifiers and usages are explicit because Python 3.13 verifies them strictly.
    authority = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
    _certificate(folder, "ca", "/CN=specbench-cluster", authority)
    names = f"subjectAltName={','.join(SERVER_NAMES)}"
    _certificate(folder, "apiserver", "/CN=kube-apiserver", [*_leaf("serverAuth"), names], signed=True)
    _certificate(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver", _leaf("clientAuth"), signed=True)
    key = str(folder / "serviceaccount.key")
    run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key])


def _leaf(usage: str) -> list[str]:
    return ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]


def _certificate(folder: Path, name: str, subject: str, extensions: list[str], *, signed: bool = False) -> None:
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
    signer = ["-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key")] if signed else []
    added = [part for extension in extensions for part in ("-addext", extension)]
    # An empty configuration, because the system's openssl.cnf adds CA:TRUE to every certificate made with -x509.
    call = ["openssl", "req", "-x509", "-config", "/dev/stdin", *_EC_KEY, *files, *signer]
    run([*call, "-days", _DAYS, "-subj", subject, *added], stdin="[req]\ndistinguished_name=name\n[name]\n")
