"""`headstart ask FILE QUESTION`: questions about a recording of any length.

    file ─▶ file_info ─▶ parts ─▶ reader ─▶ transcription: what is said ─┬─▶ notes ─▶ answers
            (header)     (30 s)     └─ frame_choice ─▶ out_of_band: what is shown

- The file: `file_info` reads its header, `parts` cuts it, `reader` decodes one part at a time with
  `audio_reader` and `video_reader`; `damage` is what they cannot decode. `frame_choice` says which
  pictures are shown, `likeness` which look alike, `picture_sizes` how large they are.
- The server: `transcription` and `out_of_band` are the two kinds of sessions that are used,
  `retried_session` opens one again that is lost. `prompts` is what the model is told.
- What is known: `notes` of each part, `retrieval` of those that a question needs, `report` of all.
- `analysis` is the loop over the parts, `question_answering` what follows; `command` and `output`
  are the user's side, `times` how people write times.

Everything goes over the Realtime protocol: the server does not know of the file.

May import: `client_key`, `gateway.errors`, `gateway.protocol`, `gateway.runtime`, `gateway.video`,
`talk`, `talk.connection`, `talk.media`.
Never: uses a server's objects. It knows a server only by its URL.

"""
