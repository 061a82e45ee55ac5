"""What to train, on what, under which limits: frozen, validated objects."""
