"""Pictures and videos: what is recognised, which frames are chosen, how many tokens they take.

`eyes` (photographs and signs), `frames` (policies of choice, drawn by `frames_chart`), `video`
(questions about long files), `tokens` (with `regions`) and `cache` (the same video again).
"""
