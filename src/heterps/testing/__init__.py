"""Random problems, tiny jobs and conformance suites, for tests and benchmarks."""
