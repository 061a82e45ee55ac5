"""Messages between processes: keys, signed frames, shared-memory segments and sockets.

```text
 keys      the run's key and what is derived from it
 frames    a header (msgpack) and raw buffers, decoded with limits
 sessions  who signed a message, and that it is new
 segments  shared memory for large buffers on one host
 pipes     short notices between processes of one host
 wake      a signal from other threads to one that waits for messages
 sockets   ZeroMQ sockets with the options that all of them share
```
"""
