"""From files to micro-batches: sources, formats, hashing, lanes and readers."""
