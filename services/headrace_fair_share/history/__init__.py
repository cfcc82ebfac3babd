"""The history of pools: recorded samples, and answers to requests for them."""
