"""The client of the service, sync and async; it needs httpx and msgspec, but none of the service's other packages."""

from swerve.client.client import AsyncClient, Client
from swerve.client.forms import CandidateLike, RankArguments, Ranking, ServiceAway, SwerveClientError

__all__ = ["AsyncClient", "CandidateLike", "Client", "RankArguments", "Ranking", "ServiceAway", "SwerveClientError"]
