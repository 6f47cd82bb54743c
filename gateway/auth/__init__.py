"""Authentication: API keys, ephemeral client secrets, and pages of other sites.

`access` decides, `client_secrets` stores the ephemeral ones, and `middleware` checks every request.

May import: `engine.api`, `errors`, `protocol`, `runtime`, `settings`.
Never: logs or stores a key. A key is known by its `key_id`.

"""
