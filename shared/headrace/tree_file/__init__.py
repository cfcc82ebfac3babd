"""Files of pools, YAML or JSON: `pool import` and `plan` read them, `pool export` writes them.

`values` parses a file into plain values that know their lines, `problems` collects all that is wrong with it, `pools` reads and
writes the pools and options. Attributes are read by the tables of `headrace.pools`, as everywhere.
"""
