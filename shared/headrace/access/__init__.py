"""The permissions of each credential on the bus, built from the tables of subjects and stores."""
