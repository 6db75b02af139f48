"""Kernels run uncompiled here: each call then takes milliseconds, and compiling them for every policy and shape takes minutes.

`test_compiled.py` shows that compiled kernels give the same bytes; the tests of the service run compiled ones throughout.
"""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def interpreted(uncompiled: None) -> None:
    """Run kernels uncompiled, but for tests that are marked `compiled`."""
