"""Claude Code transcripts: `~/.claude/projects/<folder>/<session>.jsonl`, one JSON object a line, undocumented and
drifting. What is not known is left out and counted by kind; nothing here fails on it.

    lines.py     bytes → lines: torn, broken and oversized ones
    messages.py  a line → what a person or the model said in it, or why it is no message
    tools.py     a tool's input and output → one line each
    threads.py   lines → turns: the tree, answers in several lines, subagents, compactions
    reading.py   a file, from where the last reading ended → batches of turns
    places.py    which files belong to what
    record.py    batches → transcripts: the import of files

Live capture (`clients/capture.py`) uses all but the last, so both see the same turns.
"""

SOURCE = "import:claude-code"
