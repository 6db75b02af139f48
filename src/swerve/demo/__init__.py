"""Demonstrations: see it swerve."""
