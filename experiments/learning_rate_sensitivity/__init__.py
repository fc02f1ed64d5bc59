"""How NA-DPVI's learning rate decides what its posterior is worth (appendix D of the paper)."""
