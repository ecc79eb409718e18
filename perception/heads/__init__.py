"""The heads: what the network predicts, how it is trained and decoded."""
