"""What is taken down of a conversation, kept as checkpoints, and gone back to."""
