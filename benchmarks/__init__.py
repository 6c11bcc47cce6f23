"""Speed on this machine, ``puma-coffea bench``: one file per subject, each in its own process."""
