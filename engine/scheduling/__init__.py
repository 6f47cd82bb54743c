"""Which tokens run next, and who gets memory for theirs.

`scheduler` plans a step, `runner` carries the plan out on the decoder, `admission` decides who may
come, who is offloaded and who is refused, `step_log` adds up what steps took.

May import: `api`, `config`, `decoder`, `errors`, `kvcache`.
Never: knows what tokens mean. `scheduler` and `admission` read no clock and import no torch.
"""
