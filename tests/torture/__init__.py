"""The torture suite: cases that kill, break, flood and deceive the memory, and count what it lost."""
