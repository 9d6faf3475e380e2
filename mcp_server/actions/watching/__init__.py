"""Watchers at work: what tier 2 and tier 3 need besides pure functions, and what is kept of their decisions."""
