"""Pages about one element, a pool or an operation, from what fair_share reports: shares, savings, starvation."""
