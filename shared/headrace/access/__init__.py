"""The rights of each credential on the bus, made from the tables of subjects and stores."""
