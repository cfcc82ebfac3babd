"""Preemption: what may be taken from whom when somebody is short of their fair share.

It runs the placing of `decision` over an overlay in which victims are removed, and throws the overlay away where that does not help.
"""
