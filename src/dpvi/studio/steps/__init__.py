"""The steps of the wizard, one file each."""
