"""The decisions of admission, one module for each topic.

Each function gets a `Transaction`, reads the state in it, and changes the state only by recording events. An event takes effect at
once, so each decision sees the effects of earlier decisions. A process that reads the events from the log applies them without these
rules. Everything here is pure.
"""
