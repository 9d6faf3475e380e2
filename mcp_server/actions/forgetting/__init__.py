"""A text, a turn, a conversation or a file is deleted for real."""
