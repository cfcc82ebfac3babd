"""The command `headrace replay`: show what a day would have been under another configuration."""
