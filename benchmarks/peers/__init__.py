"""Voice pipelines that people would otherwise pick, run side by side with ours: the same clips, the
same weights, the same cores, one at a time. See `headstart.benchmarks.peers.run`."""
