"""The dashboard: one page that shows a running service live: requests, rankings, alarms and shifts."""

from swerve.dashboard.hub import Hub
from swerve.dashboard.routes import extend, routes

__all__ = ["Hub", "extend", "routes"]
