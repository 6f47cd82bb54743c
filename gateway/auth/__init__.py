"""Who may talk to this server: keys, ephemeral client secrets, pages of other sites.

`access` decides, `client_secrets` keeps the ephemeral ones, `middleware` asks for every request.

May import: `config`, `engine.api`, `errors`, `protocol`, `runtime`.
Never: logs or keeps a key. A key is known by its `key_id`.
"""
