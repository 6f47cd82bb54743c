"""`headstart talk FILE --ask QUESTION`: questions about a recording of any length.

    file ─▶ facts ─▶ plan ─▶ reader: parts of 30 s ─▶ transcription ─▶ model: a summary
                             pictures, sound               each part's notes ─▶ answer

`facts` reads a file's header, `plan` cuts it into parts, `reader` decodes one part at a time with
`picture` (upright, progressive, standard range) and `choice` (which pictures of a part are shown).
`link` is one connection, `retried_session` a session over it, `transcription` what is said,
`out_of_band` the model's answers, `notes` what is known (no I/O), `wording` what the model is told,
`watch` the loop, `output` and `command` the rest. Everything goes
over the Realtime protocol: the server does not know of the file.

May import: `client_key`, `gateway.errors`, `gateway.protocol`, `gateway.runtime`, `gateway.video`,
`talk`.
Never: uses a server's objects. It knows a server only by its URL.

"""
