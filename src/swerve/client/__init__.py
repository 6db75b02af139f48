"""The client of the service: that of the distribution `swerve-client`, under the name that it has in `swerve`."""

try:
    from swerve_client import (
        AsyncClient as AsyncClient,
        CandidateLike as CandidateLike,
        Client as Client,
        ClientError as ClientError,
        RankArguments as RankArguments,
        Ranking as Ranking,
        Reranked as Reranked,
        ServiceAway as ServiceAway,
        SwerveClientError as SwerveClientError,
        report_clicks as report_clicks,
        report_clicks_async as report_clicks_async,
        rerank as rerank,
        rerank_async as rerank_async,
    )
except ModuleNotFoundError as missing:
    message = f"the client needs {missing.name}, which is not installed; install the extra: pip install 'swerve[client]'"
    raise ModuleNotFoundError(message, name=missing.name) from None
