"""Running a plan: coordinator, workers, pipeline, engines."""
