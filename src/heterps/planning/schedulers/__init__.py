"""Every scheduler by name, loaded when asked for: some need torch or an optional dependency."""
