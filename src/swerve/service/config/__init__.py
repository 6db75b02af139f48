"""The configuration of the service: a TOML file, the environment, options; checked field by field."""
