"""The stages of a frame around the network, in numpy."""
