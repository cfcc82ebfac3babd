"""An unkind world in virtual time: the real engines and shells on a bus, hosts and clocks that a seed turns against them."""
