"""The contract between client and operator: the resources, the plan derived from them, and the result documents.

Data and pure functions only. It imports pydantic and no networking library, so either side can load it without the
other's dependencies.
"""

GROUP = "specbench.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
