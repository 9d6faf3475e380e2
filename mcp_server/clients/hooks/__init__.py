"""The hooks of clients: the command `hook`, its protocol with the server, the queue, and the handling of each event."""
