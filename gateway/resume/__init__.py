"""Sessions that outlive a broken connection: their line to the client, their seat, their offer."""
