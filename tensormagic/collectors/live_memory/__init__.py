"""Where the memory is, now: every live storage once, what it is for, what it is called, and who holds it."""
