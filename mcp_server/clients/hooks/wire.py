"""What the hook command and the server agree on: where they meet, and what they say. No imports: the command is fast.

Below the local folder (`.local/`):

    run/hooks.json           where the server listens, and the token that it asks for
    run/hooks.sock           the socket, where its path is short enough
    run/starting-PID         a server is about to listen
    queue/hooks/*.json       events that nobody has seen to yet
    queue/rejected/          those that failed again and again
    brief/index.json         what a session start prints where no server listens
"""

ADDRESS = "run/hooks.json"
SOCKET = "run/hooks.sock"
STARTING = "starting-"
QUEUE = "queue/hooks"
BRIEFS = "brief"

PAUSE_VARIABLE = "CONTEXT_MANAGER_PAUSE"
WINDOW_VARIABLE = "CLAUDE_CODE_MESSAGING_SOCKET"
"""Claude Code gives it to the hooks and to the servers of one window alike; that is how a server knows its own."""

INJECTING = ("SessionStart", "UserPromptSubmit", "PostToolUse")
LATER = ("Stop", "SessionEnd", "PreCompact", "PostCompact")
"""Events whose work must be done, if not now then by the next server."""

FIELDS = (
    "session_id",
    "transcript_path",
    "cwd",
    "prompt",
    "source",
    "trigger",
    "reason",
    "tool_name",
    "agent_id",
    "agent_type",
    "last_assistant_message",
    "stop_hook_active",
)
"""What of a hook's input goes to the server. The rest (a tool's whole response) stands in the client's transcript."""

LONGEST_TEXT = 200_000
"""Characters of a field; of what is longer the beginning goes."""

LONGEST_LINE = 4_000_000
"""Bytes of a request; fits two fields of the greatest length, each character escaped."""

STARTING_SECONDS = 15.0
"""So long after its start a server is expected to listen, if it lives."""
