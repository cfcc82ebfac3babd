"""`headrace top`: the cluster at a glance. What is known, the view of the person, and the frame of both are pure."""
