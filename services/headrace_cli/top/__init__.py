"""The command `headrace top`: the cluster at a glance. What is known, the user's view, and the frame made from both are pure."""
