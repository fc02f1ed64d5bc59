"""Records on their way in: array conversion, validation by the custodian, Poisson sampling."""
