"""Voice pipelines that people would otherwise pick, run side by side with ours: the same clips, the
same weights, the same cores, one at a time.

`run` is the benchmark. `clips` are spoken to each system by `feeding`; `playback` says what a
person hears of an answer, `score` what a conversation was worth. The systems: `ours`, `pipecat`
(which runs `pipecat_bot`) and `speech_to_speech` (with `piper_server` as its voice); the first and
the last are spoken to through `realtime`. `environments` installs them, `llama` is the LLM server
of the peers, on `merged_weights`. `contention` waits for idle cores and counts what others take.
"""
