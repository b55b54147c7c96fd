"""A real Kubernetes of one node with a real S3 server, for tests and demonstrations.

    from specbench_cluster import Cluster

    cluster = Cluster().up()        # idempotent; first time builds the programs
    cluster.kubeconfig, cluster.s3.endpoint
    cluster.restart("kube-apiserver")
    cluster.down()
"""

from specbench_cluster.cluster import Cluster, Status
from specbench_cluster.errors import ClusterError
from specbench_cluster.settings import S3, Settings

__all__ = ["S3", "Cluster", "ClusterError", "Settings", "Status"]
