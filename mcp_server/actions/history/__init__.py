"""The memory in git: what is committed, looked up, taken back, tried out, and shared with another machine."""
