"""Plain frozen values in our own words, not the API server's: the two ends of `reconcile` and of `campaign`.

Whoever decides never sees a raw Pod, so every rule of the operator can be tested by a table, and `cluster` and
`reconcile` need not know each other.
"""
