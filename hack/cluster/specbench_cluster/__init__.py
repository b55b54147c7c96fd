"""A real Kubernetes cluster of one node with a real S3 server, for tests and demonstrations.

`Cluster().up()` starts it (idempotent; the first call builds the programs) and returns it. `.kubeconfig` and
`.s3` describe how to reach it, methods such as `.restart("kube-apiserver")` inject faults, `.build_image(Build(...))`
and `.load_image(archive)` add images, and `.down()` removes everything.
"""

from specbench_cluster.cluster import Cluster, Status
from specbench_cluster.errors import ClusterError
from specbench_cluster.images import Build
from specbench_cluster.settings import S3, Settings

__all__ = ["S3", "Build", "Cluster", "ClusterError", "Settings", "Status"]
