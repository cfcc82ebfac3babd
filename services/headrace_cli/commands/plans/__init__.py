"""The command `headrace plan`: the shares of a tree in a file, or of the running tree after supposed changes."""
