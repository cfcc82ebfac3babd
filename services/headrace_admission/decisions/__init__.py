"""The decisions of admission, one module for each topic.

Each function gets a `Transaction`. It reads the state and changes it only by recording events, so each decision sees the events
before it. A replay of the events needs none of these rules. Everything here is pure.
"""
