"""The configuration of the service: from a TOML file, the environment and options, checked field by field."""
