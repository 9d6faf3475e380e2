"""Topics: what sets them off, which are active, and what is kept of those decisions."""
