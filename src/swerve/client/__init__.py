"""The client of the service, sync and async; it needs httpx and msgspec, and nothing of the service."""
