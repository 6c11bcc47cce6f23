"""Events from nothing: Pythia's collisions, seen by a small copy of Delphes's CMS Phase-II detector."""
