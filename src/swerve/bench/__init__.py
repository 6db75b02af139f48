"""The benchmarks behind `swerve bench`: a fixed set of measurements, each beside a reference."""

from swerve.bench.kernels import run_kernels
from swerve.bench.rows import Row

__all__ = ["Row", "run_kernels"]
