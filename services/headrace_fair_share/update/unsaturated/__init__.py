"""Updates of small unsaturated trees, computed with plain Python numbers instead of numpy.

A tree is unsaturated if everything that is demanded fits. In small trees plain numbers are faster: a numpy call costs as much for three
elements as for a hundred, and ten times as much if the process has just slept. The results equal those of the numpy computation to the last
bit.
"""
