"""What the studies of this repository need and users do not: public data sets, rivals, tables. It is not installed."""
