"""What is declared before a run: what it will release, what is promised of it, and on what the promise rests.

Import from the modules themselves; they load no jax.
"""
