"""How the processes of a run are started, placed, watched and stopped."""
