"""Speed and memory, compared within one run; nothing here is a test."""
