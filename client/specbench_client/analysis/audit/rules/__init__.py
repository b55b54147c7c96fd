"""The audit rules, one file per family: relations between columns or between rows that must hold."""
