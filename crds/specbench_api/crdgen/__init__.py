"""What is generated from the API package: the CustomResourceDefinition, and the pages of its reference.

Models reach the API server in one form only, the YAML that `resource` renders; `hack/generate` writes it wherever it
is wanted and fails the tests when a copy is stale.
"""
