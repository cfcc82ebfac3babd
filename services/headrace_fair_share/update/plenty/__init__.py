"""Updates of small trees in which all that is demanded fits, in plain numbers.

A step of numpy costs as much for three elements as for a hundred, and in a process that slept ten times as much. What comes of an
update is the same to the last bit.
"""
