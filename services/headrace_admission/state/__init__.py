"""What admission knows: operations, the ledgers of their jobs, and the books of the trees; pure."""
