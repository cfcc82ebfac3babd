"""What `headrace export` and `headrace notify` share: positions that survive kills, and deliveries that are tried until they succeed."""
