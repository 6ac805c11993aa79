"""Files of strangers: strict JSON, arrays and tables whose claimed size is held against the bytes that are there; nothing is unpickled.

Every reader raises ValueError with the reason in one clause, or OSError as the system gives it; the caller says what it was reading.
"""
