"""Everything that touches files: writes that are private and whole, and reads that trust no file.

Every reader raises ValueError with the reason in one clause, or OSError as the system gives it.
The caller says what it was reading. Nothing is unpickled.
"""
