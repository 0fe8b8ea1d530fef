"""Where the elements of a tensor lie: strides, storages, overlaps, and the cells that pictures are made of."""
