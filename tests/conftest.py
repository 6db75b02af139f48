"""Settings of all tests: reproducible Hypothesis runs, and the twins on the path."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # `twins` is plain Python beside the tests, not part of the package

# the first example compiles kernels, so a deadline would measure the compiler
settings.register_profile("swerve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("swerve")
