"""The configuration of pool trees: what is written, the rules that it keeps, and who may change it."""
