"""The same hypothesis examples in every ``make test``; ``make soak`` draws new ones."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("drawn", max_examples=400, print_blob=True)
settings.load_profile("fixed")
