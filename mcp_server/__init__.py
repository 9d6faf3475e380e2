"""context-manager-mcp: a long memory for any agent, and each turn the densest prompt that fits a token budget."""

__version__ = "0.1.0"
