"""What one tensor is: its statistics, its place in autograd, and the tables that many of them stand in."""
