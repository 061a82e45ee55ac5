"""Plans and runs as tables and pictures."""
