"""Messages: one conversation per module, all of it msgspec Structs in msgpack.

How the format may change: a field is only ever added, at the end, with a default. A tag is never given a second meaning.
A subject that changes its meaning gets a new version token. So an older reader understands a newer writer.
Amounts are integers (`headrace.resources`), shares floats in fractions of a tree's total, moments milliseconds of Unix time
(`_at_ms`), lengths of time milliseconds (`_ms`).
"""
