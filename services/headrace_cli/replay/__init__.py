"""`headrace replay`: what a day would have been under another configuration."""
