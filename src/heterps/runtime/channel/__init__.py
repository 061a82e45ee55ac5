"""Tensors between the workers of neighbouring stages.

```text
 tensors   what a message says of its tensors, and how they lie in its buffers
 lending   shared memory of a connection: what is lent to the peer, what is borrowed from it
 peer      one worker at the other end, whoever connected
 listener  the socket that the stage before connects to
 caller    a connection to one replica of the stage after
 mesh      all connections of a worker, for its loop
```
"""

from heterps.runtime.channel.mesh import Mesh
from heterps.runtime.channel.peer import BACK, FORWARD, Arrived, Place

__all__ = ["BACK", "FORWARD", "Arrived", "Mesh", "Place"]
