"""What each layer takes on each resource type, measured with the parts that a run is made of.

```text
 fit        shares that parallelise, from times at several numbers of units
 observed   what a run's own figures say of its stages
 trial      a short run of a plan on the real engine
 layers     forward and backward of each layer, in this process
 exchange   rows from a real server, activations over a real connection, reading
 assemble   from all of these to the figures of a profile
 profiler   which of them are taken for which types, and the profile
 cache      profiles that were measured before
 refit      a profile that fits what a run has shown
```
"""

from heterps.runtime.profiling.profiler import measure_profile
from heterps.runtime.profiling.refit import refit_profile

__all__ = ["measure_profile", "refit_profile"]
