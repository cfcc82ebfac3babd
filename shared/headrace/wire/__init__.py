"""Messages on the bus: msgspec Structs, encoded in msgpack. Each module has the messages of one conversation.

Rules for changes of the format: add a field only at the end, and only with a default. Never give a tag a second meaning.
A subject that changes its meaning gets a new version token. With these rules an older reader understands a newer writer.
Amounts are integers (`headrace.resources`), shares are floats in fractions of a tree's total, timestamps are milliseconds of
Unix time (`_at_ms`), and durations are milliseconds (`_ms`).
"""
