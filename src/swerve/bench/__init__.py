"""The fixed matrix of measurements behind `swerve bench`."""

from swerve.bench.kernels import run_kernels
from swerve.bench.rows import Row

__all__ = ["Row", "run_kernels"]
