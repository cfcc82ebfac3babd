"""One element, pool or operation, as fair share tells of it: shares, savings, starvation."""
