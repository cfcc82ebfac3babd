"""The command `headrace top`: the cluster at a glance. Pure: the report of the cluster, the user's view, and the frame made from both."""
