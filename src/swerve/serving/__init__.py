"""Serving as a library: decisions, feedback, rows in memory, stored records, recordings. No network, no thread, no clock."""
