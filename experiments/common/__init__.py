"""What coverage studies share: data sets, methods, tables and the command line."""
