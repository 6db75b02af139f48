"""The service over HTTP: the process, its protocol, its routes, what they take and give."""
