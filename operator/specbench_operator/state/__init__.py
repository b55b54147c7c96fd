"""Frozen values that observations and decisions consist of: the input and output of `run` and `campaign`.

Deciding code never handles raw Kubernetes objects. So every rule can be tested with a table of values, and `cluster`
and `run` do not depend on each other.
"""
