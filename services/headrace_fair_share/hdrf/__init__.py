"""The vector fair-share algorithm (hierarchical dominant resource fairness with guarantees), pure and by numbers alone.

`model` says what goes in and what comes out; nothing here knows of messages, services or clocks.
"""
