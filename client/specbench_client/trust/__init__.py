"""How such benchmarks lie, and what gives each lie away. Pure.

One file a check under `checks/`, independent of one another; `table.py` lists them. A check says nothing where its
evidence is missing: what an engine does not tell is not held against it. Thresholds carry their argument beside them,
and docs/metrics.md is printed from the same words.
"""
