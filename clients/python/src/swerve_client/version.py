"""The version: always that of `swerve`, whose service speaks the same messages."""

__version__ = "0.2.0.dev0"
