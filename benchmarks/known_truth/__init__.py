"""Experiments whose truth is known, against which it is counted how sure specbench's intervals are."""
