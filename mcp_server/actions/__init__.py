"""What the memory does, one verb a file. Those that belong together have a room of their own:

- checkpoints: what is taken down of a conversation, kept, and gone back to
- forgetting: a text, a turn, a conversation, a file is deleted for real
- history: git: what is committed, looked up, taken back, tried out, shared with another machine
- injecting: what is pushed into a client's window
- lifecycle: conversations become knowledge, knowledge is condensed and archived
- pressure: a session grows: its live context, what leaves it, how that comes back
- watching: topics, and what sets them off
"""
