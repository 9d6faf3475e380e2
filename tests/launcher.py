"""Asks the process of `tests/preloaded.py` at a socket to run Python with these arguments, and ends as that run ended.

It starts in milliseconds: it imports next to nothing.
"""

import os
import socket
import sys

address, pid_file, mounts, *arguments = sys.argv[1:]
variables = [f"{name}={value}" for name, value in os.environ.items()]
request = os.fsencode("\0".join([os.getcwd(), pid_file, mounts, str(len(arguments)), *arguments, *variables]))  # noqa: PTH109 - pathlib is slow to import
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(address)
    socket.send_fds(connection, [len(request).to_bytes(8)], [0, 1, 2])
    connection.sendall(request)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    ended = connection.recv(16)
code = int(ended or -9)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
