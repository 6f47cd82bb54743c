"""Audio in transit: clocks, resampling."""
