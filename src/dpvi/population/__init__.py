"""What records could be: drawn from the model, with covariates from what was released of them."""
