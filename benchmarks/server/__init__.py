"""The whole server as people start it, in real time: `live` (several speakers) and `start`."""
