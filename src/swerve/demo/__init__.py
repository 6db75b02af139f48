"""The demo: a service, a search engine and simulated users whose intent shifts."""
