"""One update of the shares: cut, input, the algorithm, figures of every element."""
