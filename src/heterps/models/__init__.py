"""Models as chains of named layers, which know nothing of stages, workers or servers."""
