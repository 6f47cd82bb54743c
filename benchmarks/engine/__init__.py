"""The engine alone: time to first token, speed, K/V and answers, beside peers on the same weights.

`ttft`, `decode`, `kv` (with `kv_modality`), `encoders`, `compiled` (torch.compile), `session` (one
conversation of hours), `thinning` (words evicted by attention) and `answers` (their quality).
"""
