"""A variational auto-encoder of images, private and not: speed, loss and memory (d3p, Tables 2 and 3, Figure 3)."""
