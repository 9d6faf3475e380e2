"""What is pushed into a client's window, and what that window holds already."""
