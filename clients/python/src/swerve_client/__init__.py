"""The client of Swerve's service, sync and async; it needs httpx and msgspec, and nothing of the package `swerve`.

Importing it does not import httpx: the service shares the structures of its answers, and sends nothing.
"""

from swerve_client.client import AsyncClient, Client
from swerve_client.forms import CandidateLike, ClientError, RankArguments, Ranking, ServiceAway, SwerveClientError
from swerve_client.reranking import Reranked, report_clicks, report_clicks_async, rerank, rerank_async
from swerve_client.version import __version__

__all__ = [
    "AsyncClient",
    "CandidateLike",
    "Client",
    "ClientError",
    "RankArguments",
    "Ranking",
    "Reranked",
    "ServiceAway",
    "SwerveClientError",
    "__version__",
    "report_clicks",
    "report_clicks_async",
    "rerank",
    "rerank_async",
]
