"""Turn-taking: when a turn ends, and what interrupts an answer.

`endpoint` replays endpoint policies, ours and other people's (`endpoint_peers`, `smart_turn`), over
a record (`pause_record`) of turns (`people`) and counts what those who speak suffer
(`turn_outcomes`, drawn by `curves`). `overlap` plays sounds (`overlap_sounds`, `overlap_room`) over
an answer; `overlap_words` judges them by their words alone.
"""
