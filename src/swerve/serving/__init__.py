"""Serving as a library: decisions, feedback, rows in memory, records and their history. No network, no thread, no clock."""
