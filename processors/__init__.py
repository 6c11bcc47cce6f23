"""coffea processors."""
