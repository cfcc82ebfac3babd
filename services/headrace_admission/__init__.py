"""admission: operations from their start to their end, the ledger of their jobs, and the enrolled nodes."""
