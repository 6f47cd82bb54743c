"""What benchmarks feed to a system: recordings, voices, noises, photographs and signs.

Sound is made from a seed or spoken by packaged voices, photographs come from packages: a run can be
repeated anywhere. Nothing here measures. The halves that settings may be chosen on are cut here.
"""
