"""What is written in a picture: lines of text are found, recognised and put into reading order.

`lines` finds lines and `recogniser` reads one, both by nets that `onnx` runs; `reader` does both
for a picture, `background` does it in a thread beside the engine's steps, and `notes` words the
result for the language model.

May import: `api`, `background_thread`, `errors`, `interfaces`, `vision`.
Never: makes the engine's thread wait.
"""
