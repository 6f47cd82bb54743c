"""Models that hear and see by embeddings, from their makers' directories, in plain torch.

One file for each family, and around them: which family a directory holds (`families`), where a
served model comes from (`source`), its size in memory (`footprint`), what `headstart models info`
says.

May import: `asr`, `chat`, `config`, `decoder`, `errors`, `kernels`, `kvcache`, `models.checkpoint`,
`models.decoder`, `models.perception`.
Never: depends on `transformers`, which is only what tests compare with.
"""
