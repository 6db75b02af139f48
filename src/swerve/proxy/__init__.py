"""The proxy in front of a search engine: re-ranks its searches by configuration, and streams everything else through untouched."""
