"""The service behind a search box: it answers `rank`, learns from `feedback`, and keeps what it knows in a store."""
