"""The custom resources: `spec`, which the user writes, and `status`, which the operator writes."""
