"""Files of pools in YAML or JSON: `pool import` and `plan` read them, `pool export` writes them.

`values` parses a file into plain values with line numbers, `problems` collects everything that is wrong with the file, `pools`
reads and writes the pools and options. Attributes are parsed by the tables of `headrace.pools`, as in all other places.
"""
