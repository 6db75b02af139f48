"""`python -m swerve`."""

from swerve.cli import main

main()
