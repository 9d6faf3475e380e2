"""Imports exports and notes of other programs, and records clients' transcripts.

A transcript is a file of lines with one JSON object each, such as `~/.claude/projects/<folder>/<session>.jsonl`;
`clients/adapters` converts the lines of other clients to Claude Code's form. That form is undocumented and changes:
unknown lines are left out and counted by kind; they never cause an error.

    run.py        a file or folder → its format → an import with a report
    threads.py    lines → turns: the text of each message, the tree, answers in several lines, subagents, compactions
    reading.py    a file, from the end of the last reading → batches of turns; finds the files that belong together
    recording.py  batches → recorded sessions: the import of transcripts, and live capture for hooks
"""
