"""What the gateway measures: latency budgets of turns and chunks, Prometheus metrics, the event
loop's lag, and what the process holds of the machine.

May import: `audio`, `engine.api`.
Never: changes what is measured.
"""
