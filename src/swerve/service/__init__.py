"""The service behind a search box: answers `rank`, learns from `feedback`, and keeps its state in a store."""
