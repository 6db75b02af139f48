"""The service over HTTP: the process, the protocol, the routes, requests and answers."""
