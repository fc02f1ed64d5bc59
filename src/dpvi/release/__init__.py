"""What a record may add, what was released, and what may be asked: both sides of the privacy boundary share it."""
