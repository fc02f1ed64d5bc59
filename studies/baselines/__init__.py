"""Methods of others, built to be compared with: what they release about the records is written out beside them."""
