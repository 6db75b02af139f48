"""One page for a running service: what is asked, what is shown, what has shifted, as it happens."""

from swerve.dashboard.hub import Hub
from swerve.dashboard.routes import extend, routes

__all__ = ["Hub", "extend", "routes"]
