"""Who may start, run and wait in one pool tree; pure.

`rules` is what admission needs of the configuration. `book` is what the log says: members of pools, counts, queues, ephemeral pools;
it decides nothing. `starts`, `promotion`, `moves` and `reconfigure` decide, by the book, and hand every decision to `record`, which
brings it back into the book as an event; so what is decided next already sees it, and a replay needs none of the rules.
"""
