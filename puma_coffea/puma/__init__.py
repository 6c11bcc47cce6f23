"""PUMA itself: candidates into a sequence, a sequence into features, features into weights."""
