"""Clarity: what a conversation is about (S0)."""

COMMANDS = ("status", "scores", "stats", "config", "state", "anchor", "unanchor", "prune")
"""S0's commands; `status` is the one without a word."""
