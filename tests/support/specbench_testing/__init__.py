"""Builders and fixtures shared by several test folders."""
