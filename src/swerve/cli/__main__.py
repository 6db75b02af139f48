"""`python -m swerve.cli`."""

from swerve.cli import main

main()
