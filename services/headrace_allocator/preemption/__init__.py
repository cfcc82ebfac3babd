"""Preemption: decide which allocations may be taken back for operations that are below their fair share.

A stage runs the placing of `decision` over an overlay from which the victims are removed. If nothing can start that way, the overlay is
thrown away.
"""
