"""Where records are while a run reads them: on one device or many, in memory or on disk."""
