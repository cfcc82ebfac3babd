"""One update of the shares: its frozen input, the algorithm's input, the algorithm, and the results of every element."""
