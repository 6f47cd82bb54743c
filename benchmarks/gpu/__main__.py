"""`python -m headstart.benchmarks.gpu`: for machines without headstart's other dependencies."""

from headstart.benchmarks.gpu.command import main

main()
