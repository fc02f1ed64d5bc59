"""How honest intervals are where the model is wrong: many ways to be wrong, and four real tables."""
