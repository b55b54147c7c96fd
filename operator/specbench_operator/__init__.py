"""The Kubernetes operator: runs SpecBenchRuns and SpecBenchCampaigns, and reports their status.

`run` and `campaign` decide (pure functions), `render` builds manifests, `cluster` talks to the API server and S3,
and `handlers` connects them to watches and the work queue. Status is recomputed from what is observed on every
reconciliation, never carried in memory: events may be lost, repeated or late, and the operator may restart at any time.
"""
