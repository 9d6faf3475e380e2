"""Adds this server to a client's configuration and removes it, without changing anything else in the file."""
