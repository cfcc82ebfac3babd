"""The configuration of pool trees: how it is stored, the rules it must keep, and who may change it."""
