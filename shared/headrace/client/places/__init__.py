"""The places that a person's commands may go to, and the files that open them."""
