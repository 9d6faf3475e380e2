"""Conversations become knowledge, and knowledge is condensed and archived."""
