"""Processes of a run on the nodes of a Ray cluster.

```text
 coordinator (driver)                     node
 RayEngine ── placement group ──────────► a bundle for each unit and server
 RayHandle ── actor calls ──────────────► Keeper (actor) ── Child ──► worker or server
     └─────── key, by CURVE ────────────►    └ output, exit code, files
 everything else ◄══ sockets of the data plane ═══════════════════► worker or server
```

Ray places, starts and watches. What runs is the very process that the local engine starts, as a
child of the actor: with its environment set before any library loads, ended with its actor, and
none of its tensors going through Ray.
"""
