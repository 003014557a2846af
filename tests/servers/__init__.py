"""The servers that tests and the benchmark run beside zarrfs: each a process of this machine, on 127.0.0.1 alone.

They need nothing but Python's own library, so that any Python of at least 3.11 runs them.
"""
