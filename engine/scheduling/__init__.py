"""Scheduling: which tokens run next, and which sessions get memory.

`scheduler` plans a step, `runner` carries the plan out on the decoder, `admission` decides which
sessions are admitted, offloaded or refused, and `step_log` adds up what steps took.

May import: `api`, `config`, `decoder`, `errors`, `kvcache`.
Never: interprets tokens. `scheduler` and `admission` read no clock and import no torch.
"""
