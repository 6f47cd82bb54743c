"""`headstart bench simulate`: many sessions on many nodes in virtual time.

Placement, admission and the scheduler are the engine's own; people, steps and failures are
simulated. `costs` has what a step takes on each kind of node and where that was published,
`world` the events, `node` a node's steps, `rows` the runs; people are `inputs.turn_taking`'s.
"""
