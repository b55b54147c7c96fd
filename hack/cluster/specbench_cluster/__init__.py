"""A real Kubernetes of one node with a real S3 server, for tests and demonstrations.

`Cluster().up()` brings it up (idempotent; the first time it builds the programs) and returns it,
`.kubeconfig` and `.s3` say where it is, `.restart("kube-apiserver")` and its like make faults,
`.build_image(Build(...))` and `.load_image(archive)` bring images in, `.down()` leaves nothing.
"""

from specbench_cluster.cluster import Cluster, Status
from specbench_cluster.errors import ClusterError
from specbench_cluster.images import Build
from specbench_cluster.settings import S3, Settings

__all__ = ["S3", "Build", "Cluster", "ClusterError", "Settings", "Status"]
