"""Where results are kept: the same keys and the same rules in a local folder and in S3.

Create-only writes, a manifest last, and nothing swallowed: what could not be stored raises NotDurable with a reason.
"""
