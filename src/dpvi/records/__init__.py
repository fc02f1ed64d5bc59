"""Records on their way in: arrays, frames, files on disk, who holds which rows, Poisson sampling."""
