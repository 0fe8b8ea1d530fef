"""One file a panel: its sentences, and what it is made of."""
