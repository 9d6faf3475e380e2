"""What can go wrong, as people and programs see it.

ContextManagerError          the message says what is wrong, where, and what to do next
├── NotFound                 no such session, file, passage, commit; the message offers the nearest that exists
├── Invalid                  an argument, a setting or a file's front matter is malformed; names field and line
├── Refused                  understood, and not allowed: a path outside, a secret, a sealed transcript
├── Conflict                 somebody else changed it first, or two calls contradict each other
└── Unavailable              a part is missing or broken here (git, index, disk); the rest goes on working
"""

from __future__ import annotations


class ContextManagerError(Exception):
    """Anything that we understand well enough to explain."""


class NotFound(ContextManagerError):
    """The id or path names nothing; the message offers the nearest that exists."""


class Invalid(ContextManagerError):
    """The value is malformed; the message names the field, and file and line where there is one."""


class Refused(ContextManagerError):
    """The request is understood and not allowed."""


class Conflict(ContextManagerError):
    """What the caller saw is no longer what is there, or this call contradicts an earlier one."""


class Unavailable(ContextManagerError):
    """A part of the machine that this needs is missing or broken; the message says how to mend it."""
