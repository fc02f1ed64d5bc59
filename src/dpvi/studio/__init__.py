"""``dpvi studio``: from a CSV file to a report in the browser, on this machine alone."""
