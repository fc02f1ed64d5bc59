"""Tables of published papers, made again: ``python -m experiments.<name>``."""
