"""What a client's hooks reach: the command `hook`, the door through which it asks the running server, the queue for
when there is none, and what happens at each event."""
