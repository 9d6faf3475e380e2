"""The errors that users and calling programs see.

ContextManagerError          the message says what is wrong, where, and what to do next
├── NotFound                 no such session, file, passage or commit; the message may suggest similar ones
├── Invalid                  an argument, a setting or a file's front matter is malformed; names field and line
├── Refused                  the request is not allowed: a path outside the workspace, a secret, a sealed transcript
├── Conflict                 another program changed the data first, or two calls contradict each other
└── Unavailable              a component (git, index, disk) is missing or broken; the others still work
"""

from __future__ import annotations


class ContextManagerError(Exception):
    """An expected error. Its message explains it."""


class NotFound(ContextManagerError):
    """The id or path does not exist; the message may suggest similar ones."""


class Invalid(ContextManagerError):
    """The value is malformed; the message names the field, and file and line if there is a file."""


class Refused(ContextManagerError):
    """The request is well-formed, but not allowed."""


class Conflict(ContextManagerError):
    """The data has changed since the caller read it, or this call contradicts an earlier one."""


class Unavailable(ContextManagerError):
    """A component that the call needs is missing or broken; the message says how to repair it."""
