"""How weights of our own were made: a folder each, with its data and the command to repeat it."""
