"""The operator: turns a SpecBenchRun into pods, and pods and S3 into its status.

One function decides (`reconcile`), one room draws manifests (`render`), one talks to the API server and S3
(`cluster`), one joins them for every trigger (`handlers`). Status is computed from what is observed, so that any
handler may be lost, repeated or late, and the operator may die at any moment.
"""
