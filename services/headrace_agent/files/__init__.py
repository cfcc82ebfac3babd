"""Files of operations: fetched once for each operation, unpacked, and removed when the operation has ended."""
