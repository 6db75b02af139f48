"""The client of the service, sync and async; it needs httpx and msgspec, and nothing of the service."""

from swerve.client.client import AsyncClient, Client
from swerve.client.exchange import CandidateLike, RankArguments, Ranking, ServiceAway, SwerveClientError

__all__ = ["AsyncClient", "CandidateLike", "Client", "RankArguments", "Ranking", "ServiceAway", "SwerveClientError"]
