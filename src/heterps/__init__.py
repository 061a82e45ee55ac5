"""HeterPS."""
