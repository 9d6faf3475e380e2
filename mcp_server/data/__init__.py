"""Files that ship with the package: the tokenizer vocabulary and the default workspace."""
