"""Preemption: decide which allocations may be taken back for operations that are below their fair share.

A preemptive stage looks for a start, with the code of `decision`, on an overlay of the facts from which possible victims are removed. If no
job can start there, the overlay is thrown away.
"""
