"""Files that ship with the package: the tokenizer vocabulary, models, tables and the default workspace."""
