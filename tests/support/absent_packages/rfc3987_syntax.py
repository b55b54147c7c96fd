"""Hides the installed package of this name from the tests and from the processes that they start.

jsonschema imports it if it is there, and that takes a second of CPU time: it builds a parser for each of 38 rules. Only
tools of `requirements/dev.txt` need it; the product's images do not contain it.
"""

raise ImportError("the tests do without rfc3987_syntax")
