"""Where a gradient is cut off although it could have flowed on."""
