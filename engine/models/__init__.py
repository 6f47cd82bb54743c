"""Model families that take sound and pictures as embeddings, from published directories, in torch.

One file for each family. Around them: `families` (which family a directory holds), `source` (where
a served model comes from), `footprint` and `working_memory` (its size in memory), `info`
(`headstart models info`).

May import: `api`, `asr`, `chat`, `checkpoints`, `config`, `decoder`, `device`, `errors`, `kernels`,
`kvcache`, `models.checkpoint`, `models.decoder`, `models.perception`.
Never: depends on `transformers`, which only tests use, for comparison.
"""
