"""Deciding which layer runs on which resource type, with how many units. Pure: no I/O, no clock."""
