"""Archives that users sent for their operations: stored, sent to nodes, and removed when no operation needs them."""
