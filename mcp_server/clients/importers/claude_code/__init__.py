"""Reads transcripts: `~/.claude/projects/<folder>/<session>.jsonl`, one JSON object a line, and those of other clients,
whose lines `clients/adapters` converts to this form.

The format is undocumented and changes. Unknown lines are left out and counted by kind; they never cause an error.

    messages.py   bytes → lines → the text of each message, or why it is no message
    threads.py    lines → turns: the tree, answers in several lines, subagents, compactions
    reading.py    a file, from where the last reading ended → batches of turns; which files belong together
    recording.py  batches → recorded sessions: the import of files, and live capture for hooks
"""
