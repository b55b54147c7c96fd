"""Builders and fixtures that more than one test folder needs."""
