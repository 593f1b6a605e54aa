"""Reading items from files, queries and standard input (secret side)."""
