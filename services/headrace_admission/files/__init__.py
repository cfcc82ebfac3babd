"""Archives that people sent for their operations: taken, given to nodes, and removed when nobody needs them."""
