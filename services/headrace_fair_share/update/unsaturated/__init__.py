"""Updates of small unsaturated trees, computed with plain Python numbers instead of numpy.

A tree is unsaturated if everything that is demanded fits. A numpy call costs as much for three elements as for a hundred, and ten times as
much in a process that slept. The results equal those of the numpy computation to the last bit.
"""
