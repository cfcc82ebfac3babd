"""Fair share: the configuration of one pool tree, and what each pool and operation of it is owed."""
