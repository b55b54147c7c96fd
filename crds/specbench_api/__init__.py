"""What client and operator must agree on: the resources, the plan made of them, and what comes back.

Data and pure functions only. It imports pydantic and nothing that talks to a network, so either side may
load it without the other's libraries.
"""

GROUP = "specbench.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
