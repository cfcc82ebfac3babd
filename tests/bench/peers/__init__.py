"""The same jobs given to other systems that run many small ones, each in an environment of its own."""
