"""What all tests share: reproducible hypothesis runs, and the twins on the path."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # `twins` is no package of ours: plain Python beside the tests

# compiled kernels make the first example slow and the rest fast: a deadline would only measure the compiler
settings.register_profile("swerve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("swerve")
