"""What stands between records and a release: randomness, the bounded sum, the noise."""
