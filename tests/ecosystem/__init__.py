"""Other people's training loops, run untraced and under every follower: ``make ecosystem``."""
