"""Regions of a picture: what they show, which of them a question is about, and how many tokens each
is worth.

`grid` cuts a picture up, `findings` looks for writing, faces, things and changes in the regions,
`relevance` compares that with a question and allots tokens, `patch_cache` keeps encoded regions.

May import: `vision`.
Never: knows a model, or a session.
"""
