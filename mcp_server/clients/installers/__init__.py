"""Puts this server into a client's own configuration, and takes it out again, without touching anything else there."""
